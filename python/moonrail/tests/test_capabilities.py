"""What this build, an engine and a peer can do, by name."""

from __future__ import annotations

import json
import subprocess
import sys

import moonrail
import pytest
from moonrail.mooncake import TransferEngine

from .support import PeerProcess, clean_environment


def test_the_methods_listed_are_those_of_the_drop_in() -> None:
    listed = {item.name for item in moonrail.capabilities() if item.kind == "method"}
    present = {name for name in dir(TransferEngine) if not name.startswith("_") and name != "TransferOpcode"}
    assert listed == present


def test_what_is_there_and_what_is_not() -> None:
    able = moonrail.capabilities()
    assert able.release == moonrail.__version__
    for name in ("mooncake-v1", "mooncake-v2", "rail", "tcp", "P2PHANDSHAKE", "http", "batch_transfer_sync_write"):
        assert able.has(name), name
        assert able[name].why_not is None
    assert not able.has("rdma")
    assert able["rdma"].why_not
    assert able["rdma"].fix
    assert not able.has("teleport")
    assert repr(able).startswith(f"<Capabilities of Moonrail {moonrail.__version__}, without ")
    assert repr(moonrail.Capabilities("1.0", ())) == "<Capabilities of Moonrail 1.0>"
    with pytest.raises(KeyError):
        able["teleport"]


def test_require_names_what_where_and_the_fix() -> None:
    moonrail.require("batch_transfer_sync_write", "mooncake-v2", "tcp")
    with pytest.raises(moonrail.CapabilityError) as caught:
        moonrail.require("tcp", "rdma", "teleport")
    error = caught.value
    assert (error.code, error.stage, error.retry) == ("MISSING_CAPABILITY", "initialize", "after-fix")
    assert isinstance(error, RuntimeError)
    for part in (f"Moonrail {moonrail.__version__}", "rdma: ", "use protocol tcp", "teleport: "):
        assert part in str(error)


def test_engines_of_either_kind_are_asked_for_methods(engine: TransferEngine) -> None:
    moonrail.require("batch_register_memory", "mooncake-v2", of=engine)

    class Older:
        """An engine without batched calls, as Mooncake's was up to 0.3.4."""

        def transfer_sync_write(self) -> int:
            return 0

    moonrail.require("transfer_sync_write", "tcp", of=Older())
    with pytest.raises(moonrail.CapabilityError, match=r"Older .*lacks batch_transfer_sync_write: .*upgrade"):
        moonrail.require("batch_transfer_sync_write", "transfer_sync_write", of=Older())


def test_a_peer_tells_what_it_serves(typed: moonrail.Engine, peer: PeerProcess) -> None:
    connected = typed.connect(peer.name)
    assert {"rail-1", "mooncake-v2", "mooncake-v1", "tcp", "shm"} == set(connected.serves)
    assert connected.lacks == ()
    moonrail.require("rail", "mooncake-v2", of=connected)
    with pytest.raises(moonrail.CapabilityError, match=r"rdma"):
        moonrail.require("rdma", of=connected)


def test_a_peer_that_refuses_old_clients_says_so(typed: moonrail.Engine) -> None:
    with moonrail.Engine("127.0.0.1", refuse_v1=True) as strict:
        assert "mooncake-v1" not in typed.connect(strict.name).serves


def test_the_command_tells_the_same() -> None:
    command = [sys.executable, "-m", "moonrail", "capabilities"]
    environment = clean_environment()
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=30, check=True, env=environment)
    told = {item["name"]: item["available"] for item in json.loads(done.stdout)["capabilities"]}
    assert told == {item.name: item.available for item in moonrail.capabilities()}
    done = subprocess.run(
        [*command, "--require", "tcp", "rdma"], capture_output=True, text=True, timeout=30, check=False, env=environment
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "rdma" in done.stderr

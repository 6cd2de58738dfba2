"""What `moonrail doctor` says of genuine releases, each claim checked against what they do.

One cluster of five processes: every cell of the matrix is tried by real transfers. And the oldest engine that SGLang was
ever used with, beside SGLang's own files.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.sglang_files import Unavailable as NoSglang
from tests.consumers.sglang_files import sglang_root
from tests.interop import environments
from tests.interop.environments import OLD, Environment, Unavailable
from tests.interop.pair import Memory, Party
from tests.interop.processes import MetadataServer, Node, NodeFailed, clean_environment

CLUSTER = ["0.3.7.post2", "0.3.10.post2", "0.3.12.post1", "0.3.13.post1", "moonrail"]
EXPECTED_NAMES = {
    "0.3.7.post2": "Mooncake 0.3.5-0.3.9",
    "0.3.10.post2": "Mooncake 0.3.10.post2-0.3.11",
    "0.3.12.post1": "Mooncake 0.3.12",
    "0.3.13.post1": "Mooncake 0.3.13 or later",
}
HOST = "127.0.0.1"
REGION = 64 * 1024
BATCH = 40
LATE_SECONDS = 5.0
# An address that no process has mapped: the first page never is.
UNMAPPED = 4096
PROBE_OF_THE_DEAD = -102
DIES_OF_UNMAPPED = {"0.3.7.post2"}
"""Releases whose process ends when they are sent a request for such an address."""
STARTS = 5
"""A genuine engine picks ports and takes them a moment later: where somebody else has one by then, it fails or dies."""
BLIND_SECONDS = 1.0
"""An initiator that does not wait for an answer has said what it says by then."""

pytestmark = pytest.mark.timeout(600)  # The first run installs the releases.


def moonrail_command() -> Path:
    home = environments.moonrail()
    return environments.moonrail_program(home, None)


def doctor(*arguments: str, code: int, variables: dict[str, str] | None = None) -> dict[str, Any]:
    """The report of `moonrail doctor --json`, which has to end with this code."""
    done = subprocess.run(
        [str(moonrail_command()), "doctor", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        env=clean_environment() | (variables or {}),
        check=False,
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout}\n{done.stderr}"
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["exit_code"] == code
    return report


class Cluster:
    """One process of each release, found by P2P handshake."""

    def __init__(self, logs: Path, names: Sequence[str] = CLUSTER, *, refuse_v1: bool = False) -> None:
        self.parties: dict[str, Party] = {}
        self.logs = logs
        self._numbers = itertools.count(1)
        self._spares: list[Party] = []
        try:
            for name in names:
                environment = environments.moonrail() if name == "moonrail" else environments.genuine(name)
                self.parties[name] = self._start(name, environment, refuse_v1)
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, environment: Environment, refuse_v1: bool = False) -> Party:
        variables = {"MC_TRANSFER_TIMEOUT": "6"} | ({"MOONRAIL_V1_CLIENTS": "refuse"} if refuse_v1 else {})
        for attempt in range(STARTS):
            node = Node(name, environment, variables, self.logs / f"{name}.log")
            try:
                started = node.call("initialize", host=HOST, metadata="P2PHANDSHAKE", protocol="tcp")
                break
            except NodeFailed:
                node.kill()
                if attempt == STARTS - 1:
                    raise
        party = Party(name, node, f"{HOST}:{started['port']}", started["port"])
        party.memory("target", REGION, 1)
        party.memory("source", REGION, 2)
        party.memory("stranger", REGION, 3, registered=False)
        return party

    def region(self, party: str, name: str) -> Memory:
        return next(region for region in self.parties[party].regions if region.name == name)

    def victim(self, party: Party) -> Party:
        """Who takes the requests that may end a process: the party, or another process of its release."""
        release = party.node.environment.release.name
        if release not in DIES_OF_UNMAPPED:
            return party
        spare = self._start(f"{release} (spare)", party.node.environment)
        self._spares.append(spare)
        return spare

    def close(self) -> None:
        for party in [*self.parties.values(), *self._spares]:
            party.node.kill()


class Trial:
    """One initiator and one target of the cluster, and what really happens between them."""

    def __init__(self, cluster: Cluster, initiator: str, target: str) -> None:
        self.cluster = cluster
        self.from_, self.to = cluster.parties[initiator], cluster.parties[target]
        self.source = cluster.region(initiator, "source")
        self.sink = cluster.region(target, "target")
        self.stranger = cluster.region(target, "stranger")
        # Bytes that no trial before has left there.
        self.seed = next(cluster._numbers) + 100
        self.source.refill(self.seed)
        self.sink.refill(0)

    def write(self, address: int, length: int = 4096) -> int:
        local = self.source.address
        return self.from_.node.timed(
            "transfer", op="write", peer=self.to.name, local=local, remote=address, length=length
        ).code

    def moves(self) -> bool:
        """Whether a write reported as done arrives, whole."""
        if self.write(self.sink.address, REGION) != 0:
            return False
        self.sink.expected[:] = self.source.expected
        return arrives(self.sink)

    def reads(self) -> bool:
        """Whether a read brings what lies at the target."""
        self.sink.refill(self.seed + 1000)
        outcome = self.from_.node.timed(
            "transfer", op="read", peer=self.to.name, local=self.source.address, remote=self.sink.address, length=REGION
        )
        self.source.expected[:] = self.sink.expected
        return outcome.ok and arrives(self.source)

    def keeps_a_batch(self) -> bool:
        """Whether two batches are reported as done, and all of both arrives."""
        self.sink.refill(0)
        self.source.refill(self.seed + 2000)
        step = REGION // (2 * BATCH)
        for first in (0, BATCH):
            offsets = [index * step for index in range(first, first + BATCH)]
            outcome = self.from_.node.timed(
                "batch",
                op="write",
                peer=self.to.name,
                local=[self.source.address + offset for offset in offsets],
                remote=[self.sink.address + offset for offset in offsets],
                lengths=[step] * BATCH,
            )
            if not outcome.ok:
                return False
            low, high = first * step, (first + BATCH) * step
            self.sink.expected[low:high] = self.source.expected[low:high]
        return arrives(self.sink)

    def lies(self) -> bool:
        """Whether a write to an address that nobody has mapped is reported as done.

        The target is stopped meanwhile, as a busy one is for a while: who waits for its answer is told of the refusal
        when it goes on, and who does not has said 0 by then.
        """
        target = self.cluster.victim(self.to)
        self.from_.node.call("first_buffer", peer=target.name)  # It knows the target's descriptor from here on.
        pid = target.node.call("about")["pid"]
        os.kill(pid, signal.SIGSTOP)
        wait_until_stopped(pid)
        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(
                self.from_.node.timed,
                "transfer",
                op="write",
                peer=target.name,
                local=self.source.address,
                remote=UNMAPPED,
                length=64,
            )
            wait([said], timeout=BLIND_SECONDS)
            os.kill(pid, signal.SIGCONT)
            return said.result().ok

    def overwrites_a_stranger(self) -> bool:
        """Whether memory that was never registered takes a write, reported as done or not."""
        self.stranger.refill(7)
        self.source.refill(self.seed + 3000)
        self.write(self.stranger.address)
        self.stranger.expected[:4096] = self.source.expected[:4096]
        changed = arrives(self.stranger, seconds=0.5)
        self.stranger.refill(7)
        return changed

    def probe(self) -> int | None:
        """What the initiator's probe says of the target, which is alive; None where it cannot probe."""
        if not self.from_.node.environment.release.has_send_probe:
            return None
        return self.from_.node.timed("probe", peer=self.to.name).code


def wait_until_stopped(pid: int) -> None:
    """Returns once every thread of the process stands still."""
    tasks = Path(f"/proc/{pid}/task")
    while any((task / "stat").read_text().rpartition(")")[2].split()[0] != "T" for task in tasks.iterdir()):
        time.sleep(0.001)


def arrives(region: Memory, seconds: float = LATE_SECONDS) -> bool:
    """Whether the region comes to hold what it should. A v1 write is reported as done before it is stored."""
    for _ in range(max(1, int(seconds / 0.1))):
        if region.as_expected():
            return True
        time.sleep(0.1)
    return region.as_expected()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        running = Cluster(tmp_path_factory.mktemp("doctor"))
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def report(cluster: Cluster) -> dict[str, Any]:
    return doctor(*(party.name for party in cluster.parties.values()), code=1)


def test_the_matrix_knows_who_runs_what(cluster: Cluster, report: dict[str, Any]) -> None:
    seen = {peer["name"]: peer["release"] for peer in report["peers"]}
    for name, party in cluster.parties.items():
        if name in EXPECTED_NAMES:
            assert seen[party.name] == EXPECTED_NAMES[name]
        else:
            assert seen[party.name].startswith("Moonrail 0."), seen


PAIRS = list(itertools.permutations(CLUSTER, 2))


@pytest.mark.parametrize(("initiator", "target"), PAIRS, ids=[f"{a} to {b}" for a, b in PAIRS])
def test_every_cell_is_what_happens(initiator: str, target: str, cluster: Cluster, report: dict[str, Any]) -> None:
    names = {party.name: name for name, party in cluster.parties.items()}
    cell = next(p for p in report["pairs"] if (names[p["initiator"]], names[p["target"]]) == (initiator, target))
    problems = set(cell["problems"])
    releases = [cluster.parties[name].node.environment.release for name in (initiator, target)]
    assert cell["path"] == "tcp"
    assert cell["protocol"] == f"mooncake-v{min(release.data_protocol for release in releases)}"
    trial = Trial(cluster, initiator, target)

    def holds(problem: str, happens: bool, what: Callable[[], str] = lambda: "") -> None:
        assert happens == (problem in problems), f"{problem}: said {problem in problems}, seen {happens} {what()}"

    # A first transfer, before anything is refused: lanes that lose batches manage one now and then.
    if "loses-batches" not in problems:
        assert trial.moves(), "a legal write was not done"
        assert trial.reads(), "a legal read was not done"
    holds("loses-batches", not trial.keeps_a_batch())
    probe = trial.probe()
    if probe is not None:
        holds("probe-says-dead", probe != 0)
        assert probe in (0, PROBE_OF_THE_DEAD)
    # A lane that the target has closed loses a write here too.
    tries = 8 if "loses-batches" in problems else 1
    holds("unchecked", any(trial.overwrites_a_stranger() for _ in range(tries)))
    holds("false-success", trial.lies())
    assert ("read-back" in problems) == (initiator == "moonrail" and releases[1].data_protocol == 1)
    for name in (initiator, target):
        assert cluster.parties[name].node.alive()


def test_what_is_upgraded_first_mends_the_cluster(cluster: Cluster, report: dict[str, Any]) -> None:
    names = {party.name: name for name, party in cluster.parties.items()}
    steps = [(names[step["peer"]], step["left"]) for step in report["upgrades"]]
    assert [name for name, _ in steps] == ["0.3.7.post2", "0.3.10.post2"]
    assert steps[-1][1] == 0


def test_a_peer_that_is_not_there_is_named(cluster: Cluster) -> None:
    there = cluster.parties["moonrail"].name
    report = doctor(there, f"{HOST}:9", code=3)
    unreachable = [f for f in report["findings"] if f["check"] == "peer.unreachable"]
    assert [(f["peer"], f["code"]) for f in unreachable] == [(f"{HOST}:9", "PEER_UNREACHABLE")]


def test_pairs_that_cannot_meet_are_said_to(tmp_path: Path) -> None:
    """The oldest engine looks for data on the port beside; a Moonrail that was told to turns v1 clients away."""
    names = [OLD.name, "0.3.10.post2", "moonrail"]
    try:
        cluster = Cluster(tmp_path, names, refuse_v1=True)
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        report = doctor(*(party.name for party in cluster.parties.values()), code=1)
        known = {party.name: name for name, party in cluster.parties.items()}
        cells = {(known[pair["initiator"]], known[pair["target"]]): pair for pair in report["pairs"]}
        for pair, problems in (
            ((OLD.name, "0.3.10.post2"), {"port-beside"}),
            ((OLD.name, "moonrail"), {"port-beside", "refuses-v1"}),
            (("0.3.10.post2", "moonrail"), {"refuses-v1"}),
        ):
            assert set(cells[pair]["problems"]) == problems
            assert cells[pair]["path"] is None
            trial = Trial(cluster, *pair)
            assert not trial.moves()
            assert trial.sink.as_expected(), "something was written all the same"
        # Moonrail itself reaches all of them, and gets its writes confirmed.
        for target in names[:-1]:
            assert cells["moonrail", target]["problems"] == ["read-back"]
            trial = Trial(cluster, "moonrail", target)
            assert trial.moves()
            assert trial.reads()
    finally:
        cluster.close()


def test_every_segment_of_a_metadata_server_is_looked_at(tmp_path: Path) -> None:
    """0.3.7 publishes a handshake port there that it never opens: probes and notifications do not reach it."""
    try:
        releases = [environments.genuine(name) for name in ("0.3.7.post2", "0.3.13.post1")]
    except Unavailable as error:
        pytest.skip(str(error))
    with MetadataServer.moonrail(moonrail_command(), tmp_path / "server.log") as server:
        nodes = [
            Node(e.release.name, e, {"MC_TCP_BIND_ADDRESS": HOST}, tmp_path / f"{e.release.name}.log") for e in releases
        ]
        try:
            for node, name in zip(nodes, ("old", "new"), strict=True):
                assert node.call("initialize", host=name, metadata=server.url, protocol="tcp")["code"] == 0
            report = doctor("--metadata", server.url, code=1)
            seen = {peer["name"]: peer["release"] for peer in report["peers"]}
            assert seen == {"new": EXPECTED_NAMES["0.3.13.post1"], "old": EXPECTED_NAMES["0.3.7.post2"]}
            handshakes = [f for f in report["findings"] if f["check"] == "peer.handshake"]
            assert [finding["peer"] for finding in handshakes] == ["old"]
            cell = next(pair for pair in report["pairs"] if pair["initiator"] == "new")
            assert "loses-batches" in cell["problems"]
        finally:
            for node in nodes:
                node.kill()


def test_a_metadata_server_without_a_list_wants_names(tmp_path: Path) -> None:
    try:
        release = environments.genuine("0.3.13.post1")
    except Unavailable as error:
        pytest.skip(str(error))
    with MetadataServer.genuine(release, tmp_path / "server.log") as server:
        node = Node("one", release, {"MC_TCP_BIND_ADDRESS": HOST}, tmp_path / "one.log")
        try:
            assert node.call("initialize", host="one", metadata=server.url, protocol="tcp")["code"] == 0
            command = [str(moonrail_command()), "doctor", "--metadata", server.url]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=60, env=clean_environment(), check=False
            )
            assert done.returncode == 1
            assert "does not list its segments" in done.stderr
            report = doctor("--metadata", server.url, "one", code=0)
            assert [peer["release"] for peer in report["peers"]] == [EXPECTED_NAMES["0.3.13.post1"]]
        finally:
            node.kill()


def test_an_old_engine_beside_sglang_is_found_before_anything_is_started() -> None:
    """Both missing methods, both errors in SGLang's own words, and what helps."""
    try:
        old, root = environments.genuine(OLD.name), sglang_root()
    except (Unavailable, NoSglang) as error:
        pytest.skip(str(error))
    report = doctor("--python", str(old.python), code=1, variables={"PYTHONPATH": str(root)})
    missing = {f["method"]: f for f in report["findings"] if f["check"] == "python.methods" and f["level"] == "problem"}
    wrapper = "sglang/srt/distributed/device_communicators/mooncake_transfer_engine.py"
    for method, message in (
        ("batch_transfer_sync_write", "Mooncake's batch transfer requires mooncake-transfer-engine >= 0.3.4.post2"),
        ("batch_register_memory", "Mooncake's batch register requires a newer version"),
    ):
        finding = missing[method]
        assert finding["raises"].startswith(f"RuntimeError: {message}"), finding
        assert finding["raised"]
        assert finding["places"][0].startswith(wrapper)
        assert message in finding["what"]
        assert "pip install --upgrade mooncake-transfer-engine" in finding["fix"]
        assert "moonrail.serving.TransferEngine" in finding["fix"]
        explain = [str(moonrail_command()), "explain", finding["record"]]
        explained = subprocess.run(explain, capture_output=True, text=True, timeout=30, check=True)
        assert message in explained.stdout
    assert report["python"]["engine"]["version"] == OLD.name
    assert report["python"]["engine"]["distribution"] == "mooncake-transfer-engine"
    assert "send_probe" in missing
    [parts] = [finding for finding in report["findings"] if finding["check"] == "python.parts"]
    assert "Failed to import 'set_transfer_engine' from 'mooncake.pg'" in parts["what"]
    assert "transfer_sync_write" not in missing


@pytest.mark.parametrize("release", ["0.3.7.post2", "0.3.13.post1"])
def test_a_newer_engine_has_what_sglang_calls(release: str) -> None:
    try:
        newer, root = environments.genuine(release), sglang_root()
    except (Unavailable, NoSglang) as error:
        pytest.skip(str(error))
    code = 1 if release == "0.3.7.post2" else 0
    report = doctor("--python", str(newer.python), code=code, variables={"PYTHONPATH": str(root)})
    missing = {
        f.get("method") for f in report["findings"] if f["check"] == "python.methods" and f["level"] == "problem"
    }
    assert missing == ({"send_probe"} if release == "0.3.7.post2" else set())

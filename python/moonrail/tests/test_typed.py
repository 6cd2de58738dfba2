"""The typed API: engines, peers, transfers, errors."""

from __future__ import annotations

import pickle
import threading
import time
from typing import Any

import moonrail
import numpy as np
import pytest
from moonrail import errors

from .support import PeerProcess, free_port, mute_listener, output


def test_write_and_read(typed: moonrail.Engine, peer: PeerProcess) -> None:
    far = typed.connect(peer.name)
    assert far.name == peer.name
    assert far.release.startswith("Moonrail ")
    assert far.epoch is not None
    with typed.allocate(4096) as mine:
        mine.view[:5] = b"hello"
        far.write(mine[:5], far.buffer("pool")[10:15])
        assert peer.read(9, 7)[1:6] == b"hello"
        far.read(mine[100:105], far.buffer("pool")[10:15])
        assert bytes(mine.view[100:105]) == b"hello"


def test_a_peers_buffers(typed: moonrail.Engine, own_peer: PeerProcess) -> None:
    far = typed.connect(own_peer.name)
    assert [(buffer.name, buffer.addr, len(buffer)) for buffer in far.buffers] == [
        ("pool", own_peer.addr, own_peer.size),
        ("aux", own_peer.aux, 4096),
    ]
    assert far.buffer("aux") == far.buffers[1]
    with pytest.raises(moonrail.RemoteRangeError, match=r"no buffer called 'kv'.*aux, pool") as caught:
        far.buffer("kv")
    assert (caught.value.code, caught.value.peer) == ("REMOTE_NOT_REGISTERED", own_peer.name)
    aux = far.buffer("aux")
    own_peer.ask("free-aux")
    with typed.allocate(16) as mine, pytest.raises(moonrail.RemoteRangeError):
        far.write(mine, aux[:16])
    far.refresh()
    assert [buffer.name for buffer in far.buffers] == ["pool"]


def test_a_buffer_that_came_later_is_found(typed: moonrail.Engine) -> None:
    with moonrail.Engine("127.0.0.1") as other:
        far = typed.connect(other.name)
        assert far.buffers == ()
        with other.allocate(100, name="late") as late:
            assert far.buffer("late").addr == late.addr


def test_batches(typed: moonrail.Engine, peer: PeerProcess) -> None:
    far = typed.connect(peer.name)
    pool = far.buffer("pool")
    array = np.arange(1000, dtype=np.uint16)
    with typed.register(array) as mine:
        pairs = [(mine[i * 100 : i * 100 + 50], pool[i * 50 : (i + 1) * 50]) for i in range(20)]
        far.write_batch(pairs)
        expected = b"".join(array.tobytes()[i * 100 : i * 100 + 50] for i in range(20))
        assert peer.read(0, 1000) == expected
        array[:] = 0
        far.read_batch(pairs)
        assert b"".join(array.tobytes()[i * 100 : i * 100 + 50] for i in range(20)) == expected
        far.write_batch([])


def test_raw_addresses(typed: moonrail.Engine, peer: PeerProcess) -> None:
    far = typed.connect(peer.name)
    with typed.allocate(8192) as mine:
        mine.view[:8] = b"raw addr"
        offsets = np.array([0, 4], dtype=np.uint64)
        far.transfer("write", offsets + np.uint64(mine.addr), [peer.addr + 4, peer.addr], (4, 4))
        assert peer.read(0, 8) == b"addrraw "
        far.transfer("read", [mine.addr + 100], [peer.addr], [8])
        assert bytes(mine.view[100:108]) == b"addrraw "
        with pytest.raises(moonrail.InvalidArgumentError) as caught:
            far.transfer("write", [mine.addr], [peer.addr], [])
        assert caught.value.code == "LENGTH_MISMATCH"
        with pytest.raises(moonrail.InvalidArgumentError):
            far.transfer("copy", [mine.addr], [peer.addr], [1])
        with pytest.raises(TypeError):
            far.transfer("write", [mine.addr], [peer.addr], ["1"])


def test_notifies(typed: moonrail.Engine, peer: PeerProcess) -> None:
    far = typed.connect(peer.name)
    peer.notifies()
    with typed.allocate(16) as mine:
        far.write(mine, far.buffer("pool")[:16], notify=("done", "1"))
        far.read(mine, far.buffer("pool")[:16], notify=moonrail.Notify("done", "2"))
    far.notify("alone", "3")
    assert peer.notifies() == [("done", "1"), ("done", "2"), ("alone", "3")]
    typed.connect(typed.name).notify("me", "myself")
    assert typed.notifies() == [moonrail.Notify("me", "myself")]
    assert typed.notifies() == []


def test_probe_and_report(typed: moonrail.Engine, peer: PeerProcess) -> None:
    probe = typed.connect(peer.name).probe()
    assert 0 < probe.round_trip < 1
    assert not probe.legacy
    assert typed.probe(peer.name).round_trip > 0
    with typed.allocate(4096):
        report = typed.report()
        assert report.name == typed.name
        assert report.epoch == typed.epoch
        assert report.handshake == typed.name
        assert (report.regions, report.registered_bytes) == (1, 4096)
        assert report.paths == ["shm", "tcp"]
        assert report.fallbacks == []
    with moonrail.Engine("127.0.0.1", protocol="rdma") as fallen:
        assert "rdma" in fallen.report().fallbacks[0]


def test_paths_are_an_engine_s_own(peer: PeerProcess) -> None:
    with moonrail.Engine("127.0.0.1", paths="tcp") as one, moonrail.Engine("127.0.0.1", paths="shm,tcp") as other:
        assert (one.report().paths, other.report().paths) == (["tcp"], ["shm", "tcp"])
        for engine, path in ((one, "tcp"), (other, "shm")):
            far = engine.connect(peer.name)
            assert far.path == path
            with engine.allocate(16) as mine:
                mine.view[:] = f"moved by {path}".encode().ljust(16)
                far.write(mine, far.buffer("pool")[:16])
            assert peer.read(0, 16) == f"moved by {path}".encode().ljust(16)


def error_of(call: Any, *arguments: Any, **options: Any) -> moonrail.MoonrailError:
    with pytest.raises(moonrail.MoonrailError) as caught:
        call(*arguments, **options)
    return caught.value


def test_errors_say_what_where_and_whether_to_retry(typed: moonrail.Engine, peer: PeerProcess) -> None:
    far = typed.connect(peer.name)
    pool = far.buffer("pool")
    with typed.allocate(64) as mine:
        beyond = (peer.addr + peer.size - 8, 64)
        error = error_of(far.write_batch, [(mine, pool[:64]), (mine, beyond)])
        assert isinstance(error, moonrail.RemoteRangeError)
        assert isinstance(error, moonrail.TransferError)
        assert (error.code, error.peer, error.index, error.stage, error.retry) == (
            "REMOTE_NOT_REGISTERED",
            peer.name,
            1,
            "arguments",
            "after-fix",
        )
        error = error_of(far.write, (4096, 64), pool[:64])
        assert isinstance(error, moonrail.LocalRangeError)
        error = error_of(far.write_batch, [(mine, pool[:64]), (mine, pool[:63])])
        assert isinstance(error, moonrail.InvalidArgumentError)
        assert isinstance(error, ValueError)
        assert (error.code, error.index) == ("LENGTH_MISMATCH", 1)
        with moonrail.Engine("127.0.0.1") as other:
            foreign = typed.connect(other.name)
            assert isinstance(error_of(foreign.write, mine, pool[:64]), moonrail.InvalidArgumentError)


def test_nobody_there(typed: moonrail.Engine) -> None:
    name = f"127.0.0.1:{free_port()}"
    start = time.monotonic()
    error = error_of(typed.connect, name)
    assert time.monotonic() - start < 0.1
    assert isinstance(error, moonrail.PeerUnreachableError)
    assert isinstance(error, ConnectionError)
    assert (error.code, error.peer, error.retry) == ("PEER_UNREACHABLE", name, "safe")
    for bad in ("no-such-host.invalid:1", "127.0.0.1:70000", ""):
        assert isinstance(error_of(typed.connect, bad), moonrail.PeerUnreachableError)


def test_timeouts(peer: PeerProcess) -> None:
    with mute_listener() as name, moonrail.Engine("127.0.0.1", handshake_timeout=0.3) as engine:
        start = time.monotonic()
        error = error_of(engine.connect, name)
        assert 0.2 < time.monotonic() - start < 1
        assert isinstance(error, moonrail.PeerTimeoutError)
        assert isinstance(error, TimeoutError)


def test_a_timeout_of_one_call(typed: moonrail.Engine, tcp_peer: PeerProcess) -> None:
    import signal

    far = typed.connect(tcp_peer.name)
    with typed.allocate(tcp_peer.size) as mine:
        far.write(mine[:8], far.buffer("pool")[:8])
        tcp_peer.process.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        error = error_of(far.write, mine, far.buffer("pool"), timeout=0.5)
        assert 0.4 < time.monotonic() - start < 1.5
        assert isinstance(error, moonrail.DeadlineError)
        assert isinstance(error, TimeoutError)
        tcp_peer.process.send_signal(signal.SIGCONT)
        for bad in (-1.0, float("nan"), float("inf")):
            assert isinstance(error_of(far.write, mine[:8], (tcp_peer.addr, 8), timeout=bad), ValueError)


def test_a_stopped_peer_of_this_host_is_written_to_all_the_same(typed: moonrail.Engine, own_peer: PeerProcess) -> None:
    import signal

    far = typed.connect(own_peer.name)
    assert far.path == "shm"
    with typed.allocate(own_peer.size) as mine:
        far.write(mine[:8], far.buffer("pool")[:8])
        mine.view[:5] = b"hello"
        own_peer.process.send_signal(signal.SIGSTOP)
        far.write(mine, far.buffer("pool"), timeout=5.0)
        own_peer.process.send_signal(signal.SIGCONT)
        assert own_peer.read(0, 5) == b"hello"


def test_a_peer_that_dies(typed: moonrail.Engine, own_peer: PeerProcess) -> None:
    far = typed.connect(own_peer.name)
    with typed.allocate(4096) as mine:
        far.write(mine, far.buffer("pool")[:4096])
        own_peer.kill()
        start = time.monotonic()
        error = error_of(far.write, mine, far.buffer("pool")[:4096])
        assert isinstance(error, (moonrail.PeerGoneError, moonrail.PeerUnreachableError))
        assert time.monotonic() - start < 1


def test_background_transfers(typed: moonrail.Engine, peer: PeerProcess) -> None:
    far = typed.connect(peer.name)
    with typed.allocate(1 << 20) as mine:
        transfer = far.submit("write", [(mine, far.buffer("pool")[: 1 << 20])], notify=("n", "m"))
        assert transfer.wait(10)
        assert transfer.done()
        assert transfer.wait()
        failing = far.submit("read", [(mine, (4096, 1 << 20))])
        with pytest.raises(moonrail.RemoteRangeError):
            failing.wait(10)
        assert failing.done()
        assert isinstance(error_of(far.submit, "read", [((4096, 8), (peer.addr, 8))]), moonrail.LocalRangeError)


def test_cancelling_a_background_transfer(typed: moonrail.Engine) -> None:
    with mute_listener() as name, moonrail.Engine("127.0.0.1") as other:
        far = typed.connect(other.name)
        far._name = name  # a peer that has fallen silent since
        with typed.allocate(64) as mine:
            transfer = far.submit("write", [(mine, (4096, 64))])
            assert not transfer.wait(0.2)
            transfer.cancel()
            start = time.monotonic()
            error = error_of(transfer.wait, 5)
            assert time.monotonic() - start < 1
            assert isinstance(error, moonrail.CancelledError)
            assert error.code == "CANCELLED"


def test_starting(peer: PeerProcess) -> None:
    assert isinstance(error_of(moonrail.Engine, "127.0.0.1", protocol="nosuch"), moonrail.StartError)
    assert isinstance(error_of(moonrail.Engine, "127.0.0.1", protocol="rdma", strict=True), moonrail.StartError)
    assert isinstance(error_of(moonrail.Engine, "127.0.0.1", "redis://127.0.0.1:1"), moonrail.StartError)
    assert isinstance(error_of(moonrail.Engine, "no-such-host.invalid"), moonrail.StartError)
    assert isinstance(error_of(moonrail.Engine, peer.name), moonrail.StartError), "the port is taken"
    for options in (
        {"lanes_per_peer": 0},
        {"paths": "shm"},
        {"paths": "tcp,rdma"},
        {"ports": (0, 5)},
        {"ports": (20, 10)},
        {"listen": "nowhere"},
        {"connect_timeout": -1},
        {"progress_timeout": float("nan")},
    ):
        assert isinstance(error_of(moonrail.Engine, "127.0.0.1", **options), moonrail.InvalidArgumentError), options
    with pytest.raises(TypeError):
        moonrail.Engine("127.0.0.1", ports="12")  # type: ignore[arg-type]


def test_options_are_used() -> None:
    port = free_port()
    with moonrail.Engine("127.0.0.1", ports=(port, port + 20), lanes_per_peer=1) as engine:
        assert port <= engine.port <= port + 20
        assert engine.name == f"127.0.0.1:{engine.port}"
    with moonrail.Engine(f"127.0.0.1:{port}") as engine:
        assert engine.port == port


def test_arguments_win_over_the_environment() -> None:
    code = """
import moonrail
with moonrail.Engine("127.0.0.1") as engine:
    print(24000 <= engine.port <= 24100)
with moonrail.Engine("127.0.0.1", ports=(25000, 25100)) as engine:
    print(25000 <= engine.port <= 25100)
"""
    assert output(code, MC_MIN_RPC_PORT="24000", MC_MAX_RPC_PORT="24100").split() == ["True", "True"]


def test_a_closed_engine_says_so(peer: PeerProcess) -> None:
    engine = moonrail.Engine("127.0.0.1")
    far = engine.connect(peer.name)
    engine.close()
    engine.close()
    for call in (engine.report, lambda: engine.connect(peer.name), lambda: engine.allocate(10), far.probe):
        error = error_of(call)
        assert isinstance(error, moonrail.EngineClosedError)
        assert error.code == "NOT_INITIALIZED"


def test_threads(typed: moonrail.Engine, peer: PeerProcess) -> None:
    far = typed.connect(peer.name)
    failures: list[BaseException] = []
    with typed.allocate(1 << 20) as mine:
        pool = far.buffer("pool")

        def work(index: int) -> None:
            try:
                for _ in range(50):
                    far.write(mine[index * 100 : index * 100 + 100], pool[index * 100 : index * 100 + 100])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_every_code_has_a_class_and_survives_pickling() -> None:
    for code in errors._CLASSES:
        error = errors.exception("text", code=code, stage="transfer", retry="safe", peer="p:1", index=3)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert "text" in str(error) and f"[moonrail explain {code}]" in str(error)
        assert (str(again), again.code, again.peer, again.index, again.stage, again.retry) == (
            str(error),
            code,
            "p:1",
            3,
            "transfer",
            "safe",
        )
    assert {kind.__name__ for kind in errors._CLASSES.values()} <= set(moonrail.__all__)


def test_a_limit_for_a_peer_is_kept_and_lifted(typed: moonrail.Engine, own_peer: PeerProcess) -> None:
    peer = typed.connect(own_peer.name)
    with typed.allocate(16384) as mine:
        theirs = peer.buffer("pool")[:16384]

        def took() -> float:
            start = time.monotonic()
            for _ in range(5):
                peer.write(mine[:16384], theirs)
            return time.monotonic() - start

        with pytest.raises(moonrail.InvalidArgumentError, match="bytes_per_second"):
            peer.limit(0)
        peer.limit(100_000, background=True)
        assert 0.5 < took() < 4
        peer.limit()
        assert took() < 0.5

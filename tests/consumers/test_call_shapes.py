"""How serving stacks really call the engine: their order of calls, their argument types, their threads."""

from __future__ import annotations

import socket
import time
from contextlib import closing

import pytest

from ..recipes.fixtures import Pair
from ..recipes.nodes import Nodes
from ..recipes.sockets import free_port
from ..recipes.support import failed, notify, opcode, shuffled, steps, transfer

KIB = 1 << 10
MIB = 1 << 20

# SGLang and vLLM: prefill writes into decode


def test_vllm_ten_workers_write_to_one_peer(pair: Pair) -> None:
    """A pool of ten threads, each with batches of its own, all to one session."""
    node, target = pair.initiator, pair.target
    workers, count, size = 10, 400, 4 * KIB
    local = node.registered(workers * count * size, seed=1)
    remote = target.registered(workers * count * size)
    calls = [
        {
            "args": [
                target.name,
                steps(local.at(n * count * size), size, count),
                steps(remote.at(n * count * size), size, count),
                steps(size, 0, count),
            ]
        }
        for n in range(workers)
    ]
    answer = node.ask("threads", method="batch_transfer_sync_write", steps=calls, times=5)
    assert answer["values"] == {"0": 5 * workers}
    assert remote.digest() == local.digest()


def test_two_engines_write_to_each_other_at_once(pair: Pair) -> None:
    """Neither waits for the other's reads: no deadlock, and all bytes arrive."""
    first, second = pair.initiator, pair.target
    size = 48 * MIB
    sources = first.registered(size, seed=1), second.registered(size, seed=2)
    sinks = second.registered(size), first.registered(size)
    tokens = [
        node.start("batch_transfer_sync_write", peer, [source.base] * 4, [sink.base] * 4, [size] * 4)
        for node, peer, source, sink in zip((first, second), (second.name, first.name), sources, sinks, strict=True)
    ]
    assert first.finish(tokens[0]).ok
    assert second.finish(tokens[1]).ok
    assert [sink.digest() for sink in sinks] == [source.digest() for source in sources]


@pytest.mark.parametrize(("size", "count"), [(256, 10_240), (4 * KIB, 5_120), (72 * KIB, 400)])
def test_sglang_pages_scattered_over_all_layers(pair: Pair, size: int, count: int) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(count * size, seed=1), target.registered(count * size)
    written = shuffled(3, remote.base, size, count)
    lengths = steps(size, 0, count)
    assert node.call("batch_transfer_sync_write", target.name, steps(local.base, size, count), written, lengths).ok
    back = node.registered(count * size)
    assert node.call("batch_transfer_sync_read", target.name, steps(back.base, size, count), written, lengths).ok
    assert back.digest() == local.digest()


def test_sglang_aux_entries_of_64_bytes(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(14 * 64, seed=1), target.registered(14 * 64)
    for _ in range(100):
        entries = steps(local.base, 64, 14), steps(remote.base, 64, 14), steps(64, 0, 14)
        assert node.call("batch_transfer_sync_write", target.name, *entries).ok
    assert remote.digest() == local.digest()


def test_sglang_initializes_in_another_thread(nodes: Nodes) -> None:
    """With a deadline, in a daemon thread; every later call comes from yet other threads."""
    node, target = nodes.spawn(), nodes.start()
    node.create()
    token = node.start("initialize", "127.0.0.1", "P2PHANDSHAKE", "rdma", "")
    assert node.finish(token, 5).ok
    local, remote = node.region(MIB, seed=1), target.registered(MIB)
    assert node.finish(node.start("batch_register_memory", [local.base], [MIB]), 5).ok
    for _ in range(20):
        token = node.start("transfer_sync_write", target.name, local.base, remote.base, MIB)
        assert node.finish(token, 5).ok
    assert remote.digest() == local.digest()
    assert node.finish(node.start("send_probe", target.name), 5).ok
    assert node.finish(node.start("unregister_memory", local.base), 5).ok


def test_a_device_list_is_no_obstacle(nodes: Nodes) -> None:
    node = nodes.spawn()
    node.create()
    assert node.call("initialize", "127.0.0.1", "P2PHANDSHAKE", "tcp", "mlx5_0,mlx5_1").ok


# LMCache: asynchronous reads that are polled


def test_lmcache_polls_a_read(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    count, size = 64, 64 * KIB
    local, remote = node.registered(count * size), target.registered(count * size, seed=1)
    lists = steps(local.base, size, count), steps(remote.base, size, count), steps(size, 0, count)
    for _ in range(5):
        local.fill(9)
        submitted = node.call("batch_transfer_async_read", target.name, *lists)
        assert 0 < submitted.value < 1 << 63, "the only identifiers that LMCache takes"
        polled = node.ask("poll", id=submitted.value, limit=20)
        assert polled["value"] == 1
        assert local.digest() == remote.digest(), "done means all entries, not the first"
        assert node.call("transfer_check_status", submitted.value).value == 1


def test_a_poll_is_cheap_and_does_not_block(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    size = 64 * MIB
    local, remote = node.registered(size), target.registered(size, seed=1)
    batch = node.call("batch_transfer_async_read", target.name, [local.base] * 8, [remote.base] * 8, [size] * 8)
    assert batch.seconds < 0.2
    answer = node.ask("repeat", method="transfer_check_status", args=[batch.value], times=1_000)
    assert answer["seconds"] < 1
    assert set(answer["values"][0]) <= {"0", "1"}
    assert node.ask("poll", id=batch.value, limit=20)["value"] == 1


def test_lmcache_and_a_peer_that_is_not_there(pair: Pair) -> None:
    """Either no identifier, or one that ends in -1: both mean "unreachable" to it."""
    node = pair.initiator
    local = node.registered(KIB)
    peer = f"127.0.0.1:{free_port()}"
    submitted = node.call("batch_transfer_async_read", peer, [local.base], [local.base], [KIB])
    assert submitted.raised is None and submitted.seconds < 1
    if submitted.value != 0:
        assert 0 < submitted.value < 1 << 63
        assert node.ask("poll", id=submitted.value, limit=5)["value"] == -1
    assert peer in node.explanation()


def test_the_name_may_be_another_one_of_the_same_host(pair: Pair) -> None:
    """LMCache advertises another host name than the one it listens with."""
    node, target = pair.initiator, pair.target
    local, remote = node.registered(KIB), target.registered(KIB, seed=1)
    outcome = transfer(node, "batch_transfer_async_read", f"localhost:{target.port()}", local.base, remote.base, KIB)
    assert outcome.ok
    assert local.digest() == remote.digest()


# checkpoint-engine: everything under an assertion


def test_checkpoint_engine_asserts(nodes: Nodes) -> None:
    """Up to eight tries to initialize, a new engine each; then registration, reads of buckets and release."""
    owner, reader = nodes.start(), nodes.spawn()
    for attempt in range(3):
        assert reader.initialize(engine=f"try{attempt}").ok
        reader.destroy(f"try{attempt}")
    assert reader.initialize().ok
    sizes = [3 * MIB, 5 * MIB + 17, 64, 8 * MIB]
    weights = [owner.region(size, seed=n) for n, size in enumerate(sizes)]
    assert owner.call("batch_register_memory", [w.base for w in weights], sizes).value == 0
    bucket = reader.region(sum(sizes))
    assert reader.call("batch_register_memory", [bucket.base], [bucket.size]).value == 0
    offsets = [sum(sizes[:n]) for n in range(len(sizes))]
    for _ in range(3):
        read = reader.call(
            "batch_transfer_sync_read", owner.name, [bucket.at(o) for o in offsets], [w.base for w in weights], sizes
        )
        assert read.value == 0
    for offset, weight in zip(offsets, weights, strict=True):
        assert bucket.digest(offset, weight.size) == weight.digest()
    assert reader.call("batch_unregister_memory", [bucket.base]).value == 0
    assert owner.call("batch_unregister_memory", [w.base for w in weights]).value == 0
    assert owner.call("batch_register_memory", [w.base for w in weights], sizes).value == 0, "and once more"


# sglang-omni and FlexKV: notifications


def test_omni_reads_and_tells_the_sender(pair: Pair) -> None:
    """The receiver's read carries the note; the sender polls on its event loop, so polling may not block."""
    receiver, sender = pair.initiator, pair.target
    pool, slot = sender.registered(2 * MIB, seed=1), receiver.registered(MIB)
    for n in range(5):
        note = notify(f"request-{n}", "transfer_complete")
        outcome = receiver.call("transfer_sync", sender.name, slot.base, pool.at(n * KIB), MIB, opcode("Read"), note)
        assert outcome.ok
        assert slot.digest() == pool.digest(n * KIB, MIB)
        polled = sender.call("get_notifies")
        assert polled.value == [{"name": f"request-{n}", "msg": "transfer_complete"}]
        assert polled.seconds < 0.05
    assert sender.call("get_notifies").value == []
    answer = sender.ask("repeat", method="get_notifies", times=1_000)
    assert answer["slowest"] < 0.1 and answer["seconds"] < 1


def test_flexkv_sends_a_note_without_data(pair: Pair) -> None:
    """A zero-length write is used purely as a failure notice, with addresses that mean nothing."""
    node, target = pair.initiator, pair.target
    local, remote = node.registered(KIB, seed=1), target.registered(KIB, seed=2)
    before = remote.digest()
    for addresses in ((local.base, remote.base), (0, 0)):
        note = notify(node.name, "failed")
        assert node.call("transfer_sync", target.name, *addresses, 0, opcode("Write"), note).ok
        assert target.call("get_notifies").value == [{"name": node.name, "msg": "failed"}]
    assert remote.digest() == before


def test_notes_keep_their_order_and_their_text(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(KIB, seed=1), target.registered(KIB)
    texts = ["", "plain", 'with "quotes" and \\', "lines\nand\ttabs", "snow \u2603 \U0001f600", "x" * 100_000]
    sent = [{"name": f"n{i}", "msg": text} for i, text in enumerate(texts * 3)]
    for note in sent:
        outcome = node.call(
            "transfer_sync", target.name, local.base, remote.base, 8, opcode("Write"), notify(note["name"], note["msg"])
        )
        assert outcome.ok
    assert target.call("get_notifies").value == sent


def test_a_note_of_a_failed_transfer_is_not_sent(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(KIB, seed=1), target.registered(KIB)
    bad = node.call("transfer_sync", target.name, local.base, remote.end, 8, opcode("Write"), notify("n", "m"))
    failed(node, bad, target.name)
    batch = [local.base, local.base], [remote.base, remote.end], [8, 8]
    failed(node, node.call("batch_transfer_sync", target.name, *batch, opcode("Write"), notify("n", "m")), target.name)
    time.sleep(0.1)
    assert target.call("get_notifies").value == []


def test_notes_from_many_threads_all_arrive_once(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    local, remote = node.registered(KIB, seed=1), target.registered(KIB)
    calls = [
        {"args": [target.name, local.base, remote.base, 8, opcode("Write"), notify(f"thread-{n}", "done")]}
        for n in range(8)
    ]
    assert node.ask("threads", method="transfer_sync", steps=calls, times=10)["values"] == {"0": 80}
    names = [note["name"] for note in target.call("get_notifies").value]
    assert sorted(names) == sorted(f"thread-{n}" for n in range(8) for _ in range(10))


# vLLM's encoder cache: views of one storage, adjacent, registered again and again


def test_views_of_one_storage(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    size, count = 1_000, 30
    storage, local = target.region(size * count, seed=1), node.registered(size)
    addresses = [storage.at(n * size) for n in range(count)]
    for _ in range(3):
        assert target.call("batch_register_memory", addresses, [size] * count).value == 0
        for n in (0, 1, count - 1):
            assert transfer(node, "transfer_sync_read", target.name, local.base, addresses[n], size).ok
            assert local.digest() == storage.digest(n * size, size)
        assert target.call("unregister_memory", addresses[0]).value == 0
        assert target.call("batch_unregister_memory", addresses[1:]).value == 0
    failed(node, transfer(node, "transfer_sync_read", target.name, local.base, addresses[0], size), target.name)


def test_registered_again_with_another_length(pair: Pair) -> None:
    node, target = pair.initiator, pair.target
    region, local = target.region(64 * KIB, seed=1), node.registered(64 * KIB)
    for size in (4 * KIB, 64 * KIB, 100):
        assert target.call("register_memory", region.base, size).ok
        assert transfer(node, "transfer_sync_read", target.name, local.base, region.base, size).ok
        failed(node, transfer(node, "transfer_sync_read", target.name, local.base, region.base, size + 1), target.name)
        assert target.call("unregister_memory", region.base).ok


# The interpreter lock


@pytest.mark.parametrize("form", ["batch_transfer_sync_write", "batch_transfer_sync_read"])
def test_python_threads_run_during_a_transfer(pair: Pair, form: str) -> None:
    node, target = pair.initiator, pair.target
    size = 64 * MIB
    local, remote = node.registered(size, seed=1), target.registered(size, seed=2)
    answer = node.ask(
        "count_during", method=form, args=[target.name, [local.base] * 12, [remote.base] * 12, [size] * 12]
    )
    assert answer["value"] == 0
    # The transfer itself needs the two cores too; a held lock would leave nothing at all.
    assert answer["busy_rate"] > 0.15 * answer["idle_rate"], answer


@pytest.mark.parametrize("method", ["send_probe", "get_first_buffer_address", "transfer_sync_write"])
def test_python_threads_run_while_a_mute_peer_is_waited_for(pair: Pair, method: str) -> None:
    """Every wait lets go of the lock, and ends after 5 s by itself."""
    node = pair.initiator
    local = node.registered(KIB)
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        peer = f"127.0.0.1:{mute.getsockname()[1]}"
        rest = [local.base, local.base, KIB] if method.startswith("transfer") else []
        answer = node.ask("count_during", method=method, args=[peer, *rest])
    assert answer["value"] == 0 if method.startswith("get") else answer["value"] < 0
    assert answer["seconds"] < 7
    assert answer["busy_rate"] > 0.5 * answer["idle_rate"], answer

#!/usr/bin/env python3
"""SGLang's own prefill/decode KV path on the engine installed here: two processes with CPU buffers.

Runs SGLang's unmodified bootstrap server, MooncakeKVManager, sender and receiver, and compares the bytes of the KV
pages and of the auxiliary buffers at the decode side. Needs sglang 0.5.23 with torch and what it imports, several
gigabytes; README.md beside this file says how to get them.

    python pd.py [tiny|llama70b_tp8|llama70b_tp4_p64|dsv3_mla]...
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PORT = int(os.environ.get("BOOTSTRAP_PORT", "18998"))
BOOTSTRAP = f"127.0.0.1:{PORT}"
WAIT_S = 60.0
AUX_BYTES = 64
FIRST_ROOM = 100
SENDER_AUX, RECEIVER_AUX = 3, 5


@dataclass(frozen=True)
class Model:
    """The shape of one rank's KV pool."""

    buffers: int
    page_bytes: int
    """Bytes of one page in one buffer."""
    page_tokens: int
    mla: bool
    pages: int


MODELS = {
    "tiny": Model(4, 4096, 1, False, 64),
    "llama70b_tp8": Model(160, 4096, 16, False, 256),
    "llama70b_tp4_p64": Model(160, 32768, 64, False, 64),
    "dsv3_mla": Model(61, 73728, 64, True, 128),
}


@dataclass
class Side:
    """One side's manager and memory."""

    manager: Any
    kv: list[Any]
    aux: list[Any]
    engine: Any


def side(mode: str, model: Model) -> Side:
    """SGLang's KV manager over numpy buffers; for the prefill side its bootstrap server as well."""
    context = sglang("srt.runtime_context")
    args = (
        context.get_context()
        .override_server_args(
            disaggregation_mode=mode,
            disaggregation_transfer_backend="mooncake",
            disaggregation_bootstrap_port=PORT,
            host="127.0.0.1",
            device="cpu",
        )
        .install()
    )
    sizes_and_ranks = {f"attn_{kind}_{what}": value for kind in ("tp", "cp", "dcp", "dp") for what, value in RANK}
    context.get_parallel().override_permanently(**sizes_and_ranks, pp_group=None)
    conn = sglang("srt.disaggregation.mooncake.conn")
    modes = sglang("srt.disaggregation.utils").DisaggregationMode
    wrapper = sglang("srt.distributed.device_communicators.mooncake_transfer_engine")
    engine = wrapper.init_mooncake_transfer_engine("127.0.0.1", gpu_id=0, ib_device=None)
    kv = [np.zeros((model.pages + 1) * model.page_bytes, dtype=np.uint8) for _ in range(model.buffers)]
    aux = [np.zeros((32, AUX_BYTES), dtype=np.uint8) for _ in range(6)]
    if mode == "prefill":
        keep_alive.append(conn.MooncakeKVBootstrapServer("127.0.0.1", PORT))
        time.sleep(1)
    kind = modes.PREFILL if mode == "prefill" else modes.DECODE
    return Side(conn.MooncakeKVManager(kv_args(model, kv, aux), kind, args, model.mla), kv, aux, engine)


RANK = (("size", 1), ("rank", 0))
keep_alive: list[Any] = []


def sglang(name: str) -> Any:
    """A module of SGLang, imported late: it reads its environment when it is imported."""
    return importlib.import_module(f"sglang.{name}")


def poll_states() -> Any:
    return sglang("srt.disaggregation.base.conn").KVPoll


def kv_args(model: Model, kv: list[Any], aux: list[Any]) -> Any:
    args = sglang("srt.disaggregation.base.conn").KVArgs()
    values = {
        "engine_rank": 0,
        "pp_rank": 0,
        "system_dp_rank": 0,
        "rust_http_port": None,
        "gpu_id": 0,
        "ib_device": None,
        "kv_data_ptrs": [buffer.ctypes.data for buffer in kv],
        "kv_data_lens": [buffer.nbytes for buffer in kv],
        "kv_item_lens": [model.page_bytes] * model.buffers,
        "kv_layer_ids": [],
        "kv_cache_dtype_str": "bfloat16",
        "page_size": model.page_tokens,
        "num_draft_entries": 0,
        "aux_data_ptrs": [buffer.ctypes.data for buffer in aux],
        "aux_data_lens": [buffer.nbytes for buffer in aux],
        "aux_item_lens": [AUX_BYTES] * len(aux),
        "state_types": [],
        "state_data_ptrs": [],
        "state_data_lens": [],
        "state_item_lens": [],
        "state_layer_ids": [],
        "state_dim_per_tensor": [],
        "is_hybrid_mla_backend": False,
        "kv_head_num": 1,
        "total_kv_head_num": 1,
        "prefill_start_layer": 0,
        "prefill_end_layer": None,
        "mla_compression_ratios": None,
    }
    for name, value in values.items():
        setattr(args, name, value)
    return args


def wait(end: Any, wanted: Any) -> Any:
    """Polls a sender or a receiver until it is as wanted, or failed, or too late."""
    failed = poll_states().Failed
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        state = end.poll()
        if state in (wanted, failed):
            return state
        time.sleep(0.001)
    return "timeout"


def kv_digest(kv: list[Any], page_bytes: int, rows: Sequence[int]) -> str:
    digest = hashlib.sha256()
    for buffer in kv:
        digest.update(buffer.reshape(-1, page_bytes)[rows].tobytes())
    return digest.hexdigest()


def aux_digest(aux: list[Any], row: int) -> str:
    return hashlib.sha256(b"".join(buffer[row].tobytes() for buffer in aux)).hexdigest()


def decode(name: str) -> None:
    """The decode process: a receiver for each line of standard input."""
    conn = sglang("srt.disaggregation.mooncake.conn")
    model = MODELS[name]
    mine = side("decode", model)
    print(json.dumps({"session": mine.engine.get_session_id()}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        for _ in range(50):
            if mine.manager.try_ensure_parallel_info(BOOTSTRAP):
                break
            time.sleep(0.1)
        receiver = conn.MooncakeKVReceiver(mine.manager, BOOTSTRAP, wanted["room"])
        receiver.init(0)
        rows = np.array(wanted["rows"], dtype=np.int32)
        receiver.send_metadata(rows, aux_index=RECEIVER_AUX, state_indices=None)
        state = wait(receiver, poll_states().Success)
        told = {
            "state": str(state),
            "kv": kv_digest(mine.kv, model.page_bytes, wanted["rows"]),
            "aux": aux_digest(mine.aux, RECEIVER_AUX),
        }
        print(json.dumps(told), flush=True)
        receiver.clear()
    os._exit(0)  # SGLang's threads do not end by themselves


def prefill(name: str) -> None:
    """Sends pages to a decode process, in order and scattered; ends the process."""
    model = MODELS[name]
    mine = side("prefill", model)
    process = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "--decode", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    answer(process)
    rng = np.random.default_rng(0)
    for buffer in mine.kv:
        buffer[:] = rng.integers(0, 256, buffer.nbytes, dtype=np.uint8)
    count = min(model.pages // 2, 64)
    good = True
    for index, label in enumerate(("contiguous", "scattered", "contiguous", "scattered")):
        source, target = (
            list(range(1, count + 1)) if label == "contiguous" else rng.permutation(model.pages)[:count].tolist()
            for _ in range(2)
        )
        good &= send(mine, model, process, FIRST_ROOM + index, source, target, f"{name} {label}")
    process.kill()
    process.wait()
    os._exit(0 if good else 1)


def send(
    mine: Side,
    model: Model,
    process: subprocess.Popen[str],
    room: int,
    source: list[int],
    target: list[int],
    label: str,
) -> bool:
    """One request in two chunks; whether all its bytes arrived."""
    states = poll_states()
    count = len(source)
    for buffer in mine.aux:
        buffer[SENDER_AUX] = np.frombuffer(os.urandom(AUX_BYTES), dtype=np.uint8)
    sender = sglang("srt.disaggregation.mooncake.conn").MooncakeKVSender(mine.manager, BOOTSTRAP, room)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"room": room, "rows": target}) + "\n")
    process.stdin.flush()
    if wait(sender, states.WaitingForInput) != states.WaitingForInput:
        print("FAIL", label, "the sender never got ready", flush=True)
        return False
    sender.init(count, SENDER_AUX)
    start = time.perf_counter()
    sender.send(np.array(source[: count // 2], dtype=np.int32))
    sender.send(np.array(source[count // 2 :], dtype=np.int32))
    state = wait(sender, states.Success)
    seconds = time.perf_counter() - start
    told = answer(process)
    good = (
        state == states.Success
        and told["kv"] == kv_digest(mine.kv, model.page_bytes, source)
        and told["aux"] == aux_digest(mine.aux, SENDER_AUX)
    )
    size = count * model.page_bytes * model.buffers
    numbers = (
        f"{count * model.buffers} pages, {size / 1e6:.1f} MB, {seconds * 1e3:.1f} ms, {size / seconds / 1e9:.2f} GB/s"
    )
    print("ok  " if good else "FAIL", label, numbers, state, flush=True)
    sender.clear()
    return bool(good)


def answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise SystemExit("the decode process ended")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--decode"]:
        decode(arguments[1])
    elif len(arguments) == 1:
        prefill(arguments[0])
    script = os.path.abspath(__file__)
    return max(subprocess.run([sys.executable, script, model], check=False).returncode for model in arguments or MODELS)


if __name__ == "__main__":
    for variable, value in (
        ("MC_FORCE_TCP", "1"),
        ("MOONCAKE_PROTOCOL", "tcp"),
        ("SGLANG_HOST_IP", "127.0.0.1"),
        ("HOST_IP", "127.0.0.1"),
    ):
        os.environ.setdefault(variable, value)
    sys.exit(main(sys.argv[1:]))

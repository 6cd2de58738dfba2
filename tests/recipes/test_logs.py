"""What a healthy process says: next to nothing, no error, and nothing at all when asked to keep quiet."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .nodes import Node, Nodes
from .support import failed, transfer

ERROR_LINE = re.compile(r"^E\d{4}|\bERROR\b|\bFATAL\b|^F\d{4}")


def healthy_life(nodes: Nodes, env: dict[str, str]) -> Node:
    """Init, register, exit."""
    node = nodes.start(env=env, fresh=True)
    node.registered(1 << 16)
    assert node.leave() == 0
    return node


def test_a_healthy_start_and_exit_is_nearly_silent(nodes: Nodes) -> None:
    lines = healthy_life(nodes, {}).log()
    assert len(lines) <= 2, lines
    assert not [line for line in lines if ERROR_LINE.search(line)]


@pytest.mark.parametrize("level", ["ERROR", "error"])
def test_silence_at_the_error_level(nodes: Nodes, level: str) -> None:
    assert healthy_life(nodes, {"MC_LOG_LEVEL": level}).log() == []


def test_the_interpreter_may_leave_with_the_engine_alive(nodes: Nodes) -> None:
    node = nodes.start(env={"DRIVER_LEAVE": "finalize"})
    node.registered(1 << 16)
    assert node.leave() == 0
    assert len(node.log()) <= 2


def test_transfers_are_not_logged_one_by_one(nodes: Nodes) -> None:
    initiator, target = nodes.start_many(2, fresh=True)
    local, remote = initiator.registered(1 << 16, seed=1), target.registered(1 << 16)
    arguments = target.name, local.base, remote.base, 1 << 16
    assert initiator.ask("repeat", method="transfer_sync_write", args=arguments, times=500)["values"] == [{"0": 500}]
    for _ in range(20):
        assert transfer(initiator, "batch_transfer_async_write", *arguments).ok
        assert initiator.call("send_probe", target.name).value == 0
    assert len(initiator.log()) <= 3, initiator.log()
    assert len(target.log()) <= 3, target.log()


def test_failures_are_logged_but_not_in_a_storm(nodes: Nodes) -> None:
    initiator, target = nodes.start_many(2, fresh=True)
    local, remote = initiator.registered(1 << 16, seed=1), target.registered(1 << 16)
    bad = target.name, local.base, remote.end, 4096
    assert initiator.ask("repeat", method="transfer_sync_write", args=bad, times=300)["values"] == [{"-1": 300}]
    assert len(initiator.log()) <= 305, "at most one line a failure"
    assert len(target.log()) <= 20, "and the other side is not flooded by it"
    failed(initiator, transfer(initiator, "transfer_sync_write", *bad), target.name)


def test_a_log_directory_does_not_hurt(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.spawn(env={"MC_LOG_DIR": str(tmp_path)})
    assert node.initialize().ok


@pytest.mark.parametrize("level", ["INFO", "WARNING", "TRACE", "nonsense"])
def test_any_log_level_is_survived(nodes: Nodes, level: str) -> None:
    node = nodes.start(env={"MC_LOG_LEVEL": level})
    local = node.registered(4096)
    assert transfer(node, "transfer_sync_write", node.name, local.base, local.base, 64).ok


def test_nothing_is_written_to_standard_output(nodes: Nodes) -> None:
    """Standard output belongs to the program; the driver sends what reaches it to the log with everything else."""
    script = (
        "import mooncake.engine as e\n"
        "t = e.TransferEngine()\n"
        "assert t.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '') == 0\n"
        "t.transfer_sync_write('127.0.0.1:1', 1, 1, 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b""

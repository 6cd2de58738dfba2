"""The lines on standard error."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .support import run

FAIL = """
import sys
from moonrail.mooncake import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", sys.argv[1], "") == 0
address = engine.allocate_managed_buffer(100)
for _ in range(int(sys.argv[2])):
    assert engine.transfer_sync_write("127.0.0.1:1", address, address, 100) == -1
"""


def lines(*arguments: str, **environment: Any) -> list[str]:
    done = run(FAIL, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_a_failure_is_one_plain_line() -> None:
    (line,) = lines("tcp", "1")
    assert re.fullmatch(
        r"moonrail WARNING transfer_sync_write returned -1: PEER_UNREACHABLE peer 127\.0\.0\.1:1 .*", line
    )


def test_repeated_failures_are_no_flood() -> None:
    assert 10 <= len(lines("tcp", "500")) <= 40


@pytest.mark.parametrize("name", ["MC_LOG_LEVEL", "MOONRAIL_LOG"])
@pytest.mark.parametrize("level", ["ERROR", "error", "OFF"])
def test_the_error_level_is_silent(name: str, level: str) -> None:
    assert lines("tcp", "5", **dict[str, Any]({name: level})) == []


def test_our_own_variable_wins() -> None:
    assert len(lines("tcp", "1", MC_LOG_LEVEL="ERROR", MOONRAIL_LOG="warning")) == 1


def test_an_unknown_level_is_told() -> None:
    told = lines("tcp", "0", MC_LOG_LEVEL="loud")
    assert len(told) == 1
    assert "MC_LOG_LEVEL" in told[0]


def test_rdma_without_a_device_is_said_once() -> None:
    (line,) = lines("rdma", "0")
    assert line.startswith("moonrail WARNING")
    assert "rdma" in line
    assert lines("rdma", "0", MC_FORCE_TCP="1") == [], "TCP was asked for"


def test_line_breaks_in_names_do_not_make_lines() -> None:
    code = FAIL.replace('"127.0.0.1:1"', r'"evil\nmoonrail ERROR forged:1"')
    done = run(code, "tcp", "1")
    assert len(done.stderr.splitlines()) == 1

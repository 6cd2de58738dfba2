"""The protocol asked for: used, refused by name, or replaced with one warning; never silently something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from .nodes import Nodes
from .support import failed, transfer


@pytest.mark.parametrize("protocol", ["foo", "TCP ", "xgmi", "verbs", "rdma,tcp"])
def test_an_unknown_protocol(nodes: Nodes, protocol: str) -> None:
    node = nodes.spawn()
    outcome = node.initialize(protocol=protocol)
    assert outcome.value == -1
    failed(node, outcome, protocol.strip())
    assert not node.listeners()


def rdma_devices() -> bool:
    devices = Path("/sys/class/infiniband")
    return devices.is_dir() and any(devices.iterdir())


@pytest.mark.skipif(rdma_devices(), reason="this machine has an RDMA device")
def test_rdma_without_a_device_is_announced(nodes: Nodes) -> None:
    initiator, target = (nodes.start(protocol="rdma", fresh=True) for _ in range(2))
    local, remote = initiator.registered(100_000, seed=1), target.registered(100_000)
    for _ in range(5):
        assert transfer(initiator, "transfer_sync_write", target.name, local.base, remote.base, 100_000).ok
    assert remote.digest() == local.digest()
    for node in (initiator, target):
        warnings = [line for line in node.log() if "rdma" in line.lower()]
        assert len(warnings) == 1, node.log()
        assert "tcp" in warnings[0].lower()
    assert initiator.initialize(protocol="rdma", engine="second").ok
    assert len([line for line in initiator.log() if "rdma" in line.lower()]) <= 2


@pytest.mark.skipif(rdma_devices(), reason="this machine has an RDMA device")
def test_rdma_without_a_device_in_strict_mode(nodes: Nodes) -> None:
    node = nodes.spawn(env={"MOONRAIL_STRICT": "1"})
    outcome = node.initialize(protocol="rdma")
    assert outcome.value == -1
    failed(node, outcome, "rdma")
    assert node.call("initialize", "127.0.0.1", "P2PHANDSHAKE", "tcp", "").ok

"""Figures: off unless asked for, equal to what was moved, in a shape that Prometheus and Grafana take."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import moonrail
import pytest
from grafana_foundation_sdk.models import dashboard as grafana
from moonrail.mooncake import TransferEngine
from prometheus_client.parser import text_string_to_metric_families

from .support import PeerProcess, free_port, output

DASHBOARD = Path(__file__).parents[3] / "docs/grafana/moonrail.json"


def fetch(address: str | None, path: str = "/metrics") -> str:
    assert address is not None
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: dict[Any, float], name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


@pytest.mark.parametrize("path", ["tcp", "shm"])
def test_the_counters_are_what_was_moved(path: str) -> None:
    far = PeerProcess()
    paths = "tcp" if path == "tcp" else "tcp,shm"
    with moonrail.Engine("127.0.0.1", paths=paths, metrics="127.0.0.1:0") as engine, engine.allocate(1 << 20) as mine:
        peer = engine.connect(far.name)
        pool = peer.buffer("pool")
        for _ in range(200):
            peer.write(mine[:64], pool[:64])
        peer.read(mine[: 1 << 20], pool[: 1 << 20])
        peer.write_batch([(mine[:4096], pool[:4096]), (mine[5000:5100], pool[9000:9100])])
        submitted = peer.submit("write", [(mine[:10], pool[:10])])
        submitted.wait()
        with pytest.raises(moonrail.RemoteRangeError):
            peer.write(mine[:64], (pool.addr + far.size, 64))
        found = samples(fetch(engine.metrics_address))
        at = {"peer": far.name, "path": path}
        assert value(found, "moonrail_transfers_total", op="write", **at) == 202
        assert value(found, "moonrail_transfer_bytes_total", op="write", **at) == 200 * 64 + 4196 + 10
        assert value(found, "moonrail_transfer_bytes_total", op="read", **at) == 1 << 20
        code = "REMOTE_NOT_REGISTERED"
        assert value(found, "moonrail_transfer_failures_total", op="write", code=code, peer=far.name) == 1
        assert value(found, "moonrail_registered_bytes") == 1 << 20
        report = json.loads(fetch(engine.metrics_address, "/report"))
        assert report["failures"][0]["code"] == code
        assert report["failures"][0]["message"].count(far.name) == 1
    far.close()


def test_the_text_keeps_prometheus_rules() -> None:
    far = PeerProcess()
    with moonrail.Engine("127.0.0.1", metrics="0") as engine, engine.allocate(4096) as mine:
        engine.connect(far.name).write(mine[:64], engine.connect(far.name).buffer("pool")[:64])
        text = fetch(engine.metrics_address)
    far.close()
    families = list(text_string_to_metric_families(text))
    assert len(families) >= 13
    for family in families:
        assert family.name.startswith("moonrail_")
        assert family.documentation.endswith(".")
        assert family.type in {"counter", "gauge", "histogram"}, family
        # The reader takes the ending off the names of counters.
        assert (f"# TYPE {family.name}_total counter" in text) == (family.type == "counter"), family
        # Base units, and none of them in a label.
        assert not re.search(r"_(ms|us|milliseconds|kb|mib)(_|$)", family.name)


def test_without_being_asked_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOONRAIL_METRICS", raising=False)
    with moonrail.Engine("127.0.0.1") as engine:
        assert engine.metrics_address is None
    with pytest.raises(moonrail.InvalidArgumentError, match="MOONRAIL_METRICS"):
        moonrail.Engine("127.0.0.1", metrics="nowhere")


def test_the_drop_in_is_asked_by_the_environment() -> None:
    script = """
import json, os, urllib.request
from moonrail.mooncake import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
text = urllib.request.urlopen("http://127.0.0.1:" + os.environ["MOONRAIL_METRICS"] + "/report", timeout=10).read()
print(json.loads(text)["pid"] == os.getpid())
"""
    port = free_port()
    assert output(script, MOONRAIL_METRICS=str(port)) == "True"
    assert hasattr(TransferEngine, "initialize")


def test_a_forked_child_leaves_the_port_to_its_parent() -> None:
    with moonrail.Engine("127.0.0.1", metrics="0") as engine:
        address = engine.metrics_address
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert "moonrail_info" in fetch(address)
    with pytest.raises(urllib.error.URLError):
        fetch(address)


def test_the_dashboard_fits_grafana_and_asks_for_what_there_is() -> None:
    far = PeerProcess()
    with moonrail.Engine("127.0.0.1", metrics="0") as engine, engine.allocate(4096) as mine:
        peer = engine.connect(far.name)
        peer.write(mine[:64], peer.buffer("pool")[:64])
        with pytest.raises(moonrail.RemoteRangeError):
            peer.write(mine[:64], (64, 64))
        there_is = {name for name, _ in samples(fetch(engine.metrics_address))}
    far.close()
    content = json.loads(DASHBOARD.read_text())
    model = grafana.Dashboard.from_json(content)
    assert model.title == "Moonrail"
    assert model.panels is not None
    assert len(model.panels) == len(content["panels"])
    asked = set()
    for panel in model.panels:
        assert panel.title, panel
        place = panel.grid_pos
        assert place is not None
        assert place.x + place.w <= 24
    for panel in content["panels"]:
        for target in panel["targets"]:
            asked |= set(re.findall(r"\bmoonrail_\w+", target["expr"]))
    assert asked <= there_is, asked - there_is
    whole = {re.sub(r"_(bucket|sum|count)$", "", name) for name in there_is}
    assert whole == {re.sub(r"_bucket$", "", name) for name in asked}, "a figure that no panel shows"

"""The error reference against what a genuine engine really says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.interop import environments
from tests.interop.environments import LATEST, Unavailable

SCRIPT = Path(__file__).parent / "provoke.py"

# The first run installs the release.
pytestmark = pytest.mark.timeout(600)


def test_genuine_messages_lead_to_their_records() -> None:
    try:
        genuine = environments.genuine(LATEST)
    except Unavailable as error:
        pytest.skip(str(error))
    moonrail = environments.moonrail()
    said = subprocess.run(
        [str(genuine.python), str(SCRIPT)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=90,
        check=True,
    ).stderr
    done = subprocess.run(
        [str(moonrail.python), "-m", "moonrail", "explain", "--log", "-", "--json"],
        input=said,
        capture_output=True,
        timeout=60,
        check=True,
    )
    found = {record["slug"] for record in json.loads(done.stdout)["found"]}
    expected = {
        slug
        for line in said.decode(errors="replace").splitlines()
        if line.startswith("### ")
        for slug in line.split()[1:]
    }
    assert len(expected) > 10
    assert expected <= found, f"not recognised: {sorted(expected - found)}\n{said.decode(errors='replace')}"
    assert found <= expected, f"taken for something else: {sorted(found - expected)}"

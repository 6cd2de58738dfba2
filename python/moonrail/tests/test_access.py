"""Engines with a shared key, in processes of their own, and memory that may only be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import moonrail
import pytest

from .support import clean_environment

KEY = "the shared key of these tests"
OTHER = "another key of these tests"

TARGET = """
import sys, moonrail
with moonrail.Engine("127.0.0.1") as engine:
    buffer = engine.allocate(4096, name="pool")
    buffer.view[:] = b"\\xa5" * 4096
    print(engine.name, flush=True)
    sys.stdin.readline()
    print(bytes(buffer.view) == b"\\xa5" * 4096, engine.report().served)
"""


def key_file(folder: Path, key: str, name: str = "key") -> Path:
    path = folder / name
    path.touch(0o600)
    path.write_text(key)
    return path


def refused(engine: moonrail.Engine, peer: str) -> str:
    with pytest.raises(moonrail.AccessError) as caught:
        engine.connect(peer)
    assert isinstance(caught.value, PermissionError)
    assert caught.value.peer == peer
    assert KEY not in str(caught.value)
    return caught.value.code


def test_only_who_has_the_key_gets_through(tmp_path: Path) -> None:
    path = key_file(tmp_path, KEY)
    target = subprocess.Popen(
        [sys.executable, "-c", TARGET],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment() | {"MOONRAIL_KEY_FILE": str(path)},
    )
    try:
        assert target.stdout is not None
        name = target.stdout.readline().strip()
        with moonrail.Engine("127.0.0.1") as stranger:
            assert refused(stranger, name) == "KEY_REQUIRED"
        with moonrail.Engine("127.0.0.1", key=OTHER) as other:
            assert refused(other, name) == "KEY_REFUSED"
        with moonrail.Engine("127.0.0.1", key_file=path) as member, member.allocate(16) as mine:
            far = member.connect(name)
            assert far.path == "tcp"
            far.read(mine, far.buffer("pool")[:16])
            assert bytes(mine.view) == b"\xa5" * 16
        out, errors = target.communicate("\n", timeout=30)
        assert out.split() == ["True", "1"], "nothing was written, and one request served"
        lines = [line for line in errors.splitlines() if "refused" in line]
        assert len(lines) == 2, errors
        assert KEY not in errors
    finally:
        target.kill()
        target.communicate()


def test_a_member_does_not_call_strangers_unless_allowed(tmp_path: Path) -> None:
    path = key_file(tmp_path, KEY)
    with moonrail.Engine("127.0.0.1") as stranger, stranger.allocate(16, name="pool"):
        with moonrail.Engine("127.0.0.1", key_file=path) as member:
            assert refused(member, stranger.name) == "PEER_UNPROVEN"
        with moonrail.Engine("127.0.0.1", key_file=path, allow=["mooncake"]) as lenient:
            far = lenient.connect(stranger.name)
            with lenient.allocate(16) as mine:
                mine.view[:] = b"0123456789abcdef"
                far.write(mine, far.buffer("pool")[:16])


def test_settings_that_cannot_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = key_file(tmp_path, KEY)
    with pytest.raises(moonrail.InvalidArgumentError, match="key_file and key are both given"):
        moonrail.Engine("127.0.0.1", key_file=path, key=KEY)
    with pytest.raises(moonrail.InvalidArgumentError, match="nothing that can be allowed"):
        moonrail.Engine("127.0.0.1", key_file=path, allow=["everything"])
    path.chmod(0o644)
    with pytest.raises(moonrail.InvalidArgumentError, match="mode 0644"):
        moonrail.Engine("127.0.0.1", key_file=path)
    with pytest.raises(moonrail.InvalidArgumentError, match="a key of 6 bytes") as caught:
        moonrail.Engine("127.0.0.1", key="secret")
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("MOONRAIL_KEY", KEY)
    monkeypatch.setenv("MOONRAIL_KEY_FILE", os.fspath(path))
    with pytest.raises(moonrail.InvalidArgumentError, match="both MOONRAIL_KEY_FILE and MOONRAIL_KEY"):
        moonrail.Engine("127.0.0.1")


@pytest.mark.parametrize("paths", ["tcp", "tcp,shm"])
def test_read_only_memory(paths: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONRAIL_PATHS", paths)
    with moonrail.Engine("127.0.0.1") as one, moonrail.Engine("127.0.0.1") as two:
        shown = one.allocate(64, name="shown", readonly=True)
        shown.view[:4] = b"show"
        far = two.connect(one.name)
        with two.allocate(64) as mine:
            far.read(mine, far.buffer("shown")[:64])
            assert bytes(mine.view[:4]) == b"show"
            mine.view[:4] = b"evil"
            with pytest.raises(moonrail.RemoteRangeError) as caught:
                far.write(mine, far.buffer("shown")[:64])
            assert caught.value.code == "PERMISSION_DENIED"
        assert bytes(shown.view[:4]) == b"show"


def test_tokens() -> None:
    with moonrail.Engine("127.0.0.1") as one, moonrail.Engine("127.0.0.1") as two:
        secret = one.allocate(64, name="secret", guarded=True)
        secret.view[:6] = b"secret"
        far = two.connect(one.name)
        with two.allocate(64) as mine:

            def refused() -> None:
                with pytest.raises(moonrail.RemoteRangeError) as caught:
                    far.read(mine, far.buffer("secret")[:64])
                assert caught.value.code == "TOKEN_REFUSED"
                assert bytes(mine.view) == bytes(64)

            refused()
            two.present(one.token(secret, valid_for=0))
            refused()
            token = one.token(secret[10:20], valid_for=60)
            two.present(token)
            far.read(mine, far.buffer("secret")[:64])
            assert bytes(mine.view[:6]) == b"secret"
            with pytest.raises(moonrail.RemoteRangeError):
                far.write(mine, far.buffer("secret")[:64])
            with pytest.raises(moonrail.InvalidArgumentError, match="not a region token"):
                two.present(token[:-1])
            with pytest.raises(moonrail.InvalidArgumentError, match="needs a token"):
                two.token(mine)

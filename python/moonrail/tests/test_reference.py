"""The error reference against the real thing: provoked errors have their record, and the code in records runs."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import moonrail
import pytest
from moonrail.mooncake import TransferEngine

REPOSITORY = Path(__file__).resolve().parents[3]
SNIPPETS = ("exampleFix", "validationCode", "tryCatchPattern")
SNIPPET_S = 60

Record = dict[str, Any]


def command(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moonrail", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    folder = tmp_path_factory.mktemp("reference")
    done = command("reference", "export", str(folder))
    assert done.returncode == 0, done.stderr
    files = sorted((folder / "api" / "errors").glob("*.json"))
    return [json.loads(file.read_text()) for file in files if file.stem not in ("index", "schema")]


def slugs(line: str) -> list[str]:
    """What `moonrail explain` makes of a message."""
    done = command("explain", "--json", "--", line)
    return [record["slug"] for record in json.loads(done.stdout)["found"]]


def test_patterns_work_in_python_too(records: list[Record]) -> None:
    for record in records:
        for seen in record["seenAs"]:
            assert re.search(record["messagePattern"], seen), record["slug"]


# Code in records


def snippets(records: list[Record], *kinds: str) -> Iterator[tuple[str, str, str, str]]:
    for record in records:
        for kind in kinds:
            if record[kind] is not None:
                yield f"{record['slug']} {kind}", record[kind], record[f"{kind}Language"], record.get(f"{kind}Runs", "")


def test_code_is_code(records: list[Record]) -> None:
    count = 0
    for name, text, language, _ in snippets(records, *SNIPPETS):
        count += 1
        if language == "python":
            compile(text, name, "exec")
        else:
            checked = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, timeout=10, check=False)
            assert checked.returncode == 0, f"{name}: {checked.stderr}"
    assert count > 60


def test_fixes_and_checks_run(records: list[Record], tmp_path: Path) -> None:
    """Everything that a machine without devices and other projects can run."""
    script = os.path.dirname(sys.executable)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "MOONRAIL_"))}
    environment = clean | {"PATH": f"{script}:{os.environ['PATH']}"}
    started = []
    for name, text, language, runs in snippets(records, "exampleFix", "validationCode"):
        if runs == "elsewhere":
            continue
        file = tmp_path / f"{name.replace(' ', '-')}.{language}"
        file.write_text(text)
        program = [sys.executable, str(file)] if language == "python" else ["sh", "-eu", str(file)]
        started.append((name, program))
    assert len(started) > 40
    failed = []
    # A few at a time: each is a process that mostly waits for its imports.
    for at in range(0, len(started), 4):
        running = [
            (
                name,
                subprocess.Popen(
                    program,
                    cwd=tmp_path,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                ),
            )
            for name, program in started[at : at + 4]
        ]
        for name, process in running:
            try:
                said, _ = process.communicate(timeout=SNIPPET_S)
            finally:
                process.kill()
            if process.returncode != 0:
                failed.append(f"{name}:\n{said}")
    assert not failed, "\n".join(failed)


# Errors as they really read


def message(call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call(*arguments, **named)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_every_exception_of_the_typed_api_ends_in_its_command() -> None:
    with moonrail.Engine("127.0.0.1") as engine, moonrail.Engine("127.0.0.1") as target:
        pool, page = target.allocate(4096, name="kv"), engine.allocate(64)
        peer = engine.connect(target.name)
        provoked = {
            "REMOTE_NOT_REGISTERED": message(peer.write, page, moonrail.RemoteRange(peer.name, 4096, 64)),
            "LOCAL_NOT_REGISTERED": message(peer.write, bytearray(64), peer.buffer("kv")[0:64]),
            "LENGTH_MISMATCH": message(peer.write, page, peer.buffer("kv")[0:32]),
            "INVALID_ARGUMENT": message(engine.register, (0, 4096)),
            "ADDRESS_OVERLAPPED": message(engine.register, page),
            "PEER_UNREACHABLE": message(engine.connect, "127.0.0.1:1"),
            "BAD_PEER_NAME": message(engine.connect, "127.0.0.1:70000"),
            "NAME_RESOLUTION": message(engine.connect, "no-such-host.invalid:15001"),
            "LISTEN_FAILED": message(moonrail.Engine, target.name),
            "UNKNOWN_PROTOCOL": message(moonrail.Engine, "127.0.0.1", metadata="etcd://127.0.0.1:1"),
            "METADATA": message(moonrail.Engine, "x", metadata="http://127.0.0.1:1/metadata"),
            "RESOURCE_LIMIT": message(engine.allocate, 1 << 60),
        }
        kept = target.name
        pool.close()
    provoked["NOT_INITIALIZED"] = message(engine.connect, kept)
    for code, text in provoked.items():
        assert text.endswith(f"[moonrail explain {code}]"), text
        assert text.count("[moonrail explain") == 1, text
    # One process for all of them.
    done = command("explain", "--log", "-", "--json", stdin="\n".join(provoked.values()))
    report = json.loads(done.stdout)
    lines = {found["firstLine"] for found in report["found"]}
    assert lines == set(range(1, len(provoked) + 1)), done.stdout


def test_exceptions_without_a_code_have_records_too() -> None:
    engine = TransferEngine()
    with moonrail.Engine("127.0.0.1") as own:
        memory = own.allocate(64)
        view = memoryview(memory)
        provoked = [
            (message(engine.register_memory, "x", 1), "moonrail-argument-not-an-integer"),
            (message(engine.batch_register_memory, 5, [1]), "moonrail-argument-not-a-sequence"),
            (message(engine.initialize, None, "P2PHANDSHAKE", "tcp", ""), "moonrail-argument-not-text"),
            (message(own.register, memoryview(bytearray(8))[::2]), "moonrail-memory-not-contiguous"),
            (message(own.register, b"constant"), "moonrail-memory-read-only"),
            (message(memory.close), "moonrail-views-of-the-buffer-exist"),
        ]
        view.release()
    done = command("explain", "--log", "-", "--json", stdin="\n".join(text for text, _ in provoked))
    found = {record["firstLine"]: record["slug"] for record in json.loads(done.stdout)["found"]}
    assert found == {line: slug for line, (_, slug) in enumerate(provoked, 1)}, done.stdout


def test_errors_of_the_system_read_as_in_their_records(records: list[Record]) -> None:
    import errno
    import socket

    lines = {}
    for record in records:
        code = record["errorCode"]
        if record["slug"].startswith("kernel-e") and code is not None:
            number = getattr(errno, code)
            lines[str(OSError(number, os.strerror(number)))] = record["slug"]
            lines[f"{os.strerror(number)} (os error {number})"] = record["slug"]
    lines[message(socket.getaddrinfo, "no-such-host.invalid", 1)] = "kernel-eai-noname"
    assert len(lines) > 30
    for line, slug in lines.items():
        pattern = next(record["messagePattern"] for record in records if record["slug"] == slug)
        assert re.search(pattern, line), f"{slug}: {line}"


def test_the_drop_in_tells_the_command() -> None:
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert engine.send_probe("127.0.0.1:1") == -102
    assert str(engine.last_error()).endswith("[moonrail explain PEER_UNREACHABLE]")
    assert engine.unregister_memory(12345) == -3
    assert slugs(str(engine.last_error())) == ["moonrail-address-not-registered"]


def test_a_message_keeps_its_text_when_it_is_pickled() -> None:
    import pickle

    with moonrail.Engine("127.0.0.1") as engine, pytest.raises(moonrail.MoonrailError) as caught:
        engine.connect("127.0.0.1:70000")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.code == "BAD_PEER_NAME"


# Texts in the sources


def rendered(node: ast.expr) -> str:
    """A message with something in each of its places."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(rendered(value) for value in node.values)
    if isinstance(node, ast.BinOp):
        return rendered(node.left) + rendered(node.right)
    if isinstance(node, ast.FormattedValue) and node.conversion == ord("r"):
        of_the_module = isinstance(node.value, ast.Name) and node.value.id == "__name__"
        return "'moonrail.mooncake'" if of_the_module else "'1'"
    return "1"


def raised(tree: ast.AST) -> Iterator[str]:
    """The texts of exceptions that are raised with one, or made by a helper."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            call, text = node.exc, node.exc.args[0]
            if isinstance(text, ast.Constant | ast.JoinedStr | ast.BinOp):
                assert isinstance(call.func, ast.Name | ast.Attribute)
                name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
                # A helper makes exceptions that carry a code, and so a record.
                yield f"{'ValueError' if name.startswith('_') else name}: {rendered(text)}"


def test_every_exception_in_the_sources_has_a_record() -> None:
    texts = []
    for folder in ("python/moonrail/src", "python/moonrail-mooncake/src", "python/moonrail/data"):
        for file in (REPOSITORY / folder).rglob("*.py"):
            texts += [(str(file), text) for text in raised(ast.parse(file.read_text()))]
    assert len(texts) > 20
    log = "\n".join(text.replace("\n", " ") for _, text in texts)
    done = command("explain", "--log", "-", "--json", stdin=log)
    assert done.returncode == 0, done.stderr
    known = json.loads(done.stdout)["found"]
    patterns = [
        re.compile(json.loads(command("explain", "--json", found["id"]).stdout)["found"][0]["messagePattern"])
        for found in known
    ]
    without = [where for where in texts if not any(pattern.search(where[1]) for pattern in patterns)]
    assert not without, "write records in crates/reference/records for these"

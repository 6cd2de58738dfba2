"""`moonrail.serving` over engines of three ages: the same calls, the same bytes, the same words for what fails."""

from __future__ import annotations

import hashlib
import json
import random
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import environments
from tests.interop.environments import LATEST, OLD, Environment, Unavailable
from tests.interop.processes import clean_environment, end

NODE = Path(__file__).with_name("serving_node.py")
REPLY_SECONDS = 60
LENGTH = 1 << 20

pytestmark = pytest.mark.timeout(600)  # The first run installs the releases.


STARTS = 5
"""The oldest engine takes the port above the one it found free, whoever has it, and dies where somebody does."""


class Died(Exception):
    """A process ended, or did not answer in time; the text is what it wrote."""


class Node:
    """A process with an adapter."""

    def __init__(self, environment: Environment, packages: Path, log: Path) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [str(environment.python), str(NODE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=clean_environment() | {"PYTHONPATH": str(packages)},
            )

    def ask(self, do: str, **arguments: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], REPLY_SECONDS)
        line = stdout.readline() if ready else b""
        if not line:
            raise Died(f"no reply to {do}: {self.log.read_text(errors='replace')[-2000:]}")
        reply = json.loads(line)
        assert "error" not in reply, f"{do}: {reply['error']}"
        return reply["value"]

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of the adapter gives."""
        return self.ask("call", method=method, arguments=list(arguments))

    def kill(self) -> None:
        end(self._process)


class Two:
    """Two processes over one engine: what each says of itself, and a region of each."""

    def __init__(self, environment: Environment, packages: Path, logs: Path) -> None:
        self.nodes: list[Node] = []
        (self.near, self.about), (self.far, about) = (
            self._start(environment, packages, logs / f"{side}.log") for side in ("near", "far")
        )
        self.session: str = about["session"]
        self.source: int = self.near.ask("allocate", name="source", length=LENGTH, seed=1)
        self.sink: int = self.far.ask("allocate", name="sink", length=LENGTH, seed=0)
        self.bytes = random.Random(1).randbytes(LENGTH)
        self.expected = bytearray(LENGTH)

    def _start(self, environment: Environment, packages: Path, log: Path) -> tuple[Node, dict[str, Any]]:
        for attempt in range(STARTS):
            node = Node(environment, packages, log)
            self.nodes.append(node)
            try:
                return node, node.ask("start")
            except Died:
                node.kill()
                if attempt == STARTS - 1:
                    raise
        raise AssertionError("no start was tried")

    def write(self, moves: list[tuple[int, int, int]]) -> Any:
        """One batch; what arrives is expected to."""
        reply = self.near.call(
            "batch_transfer_sync",
            self.session,
            [self.source + come for come, _, _ in moves],
            [self.sink + go for _, go, _ in moves],
            [length for _, _, length in moves],
        )
        if reply == {"result": 0}:
            for come, go, length in moves:
                self.expected[go : go + length] = self.bytes[come : come + length]
        return reply

    def arrived(self) -> bool:
        return bool(self.far.ask("digest", name="sink") == hashlib.sha256(self.expected).hexdigest())

    def close(self) -> None:
        for node in self.nodes:
            node.kill()


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Moonrail's package and no `mooncake`: what `pip install moonrail` adds to a genuine environment."""
    import moonrail

    folder = tmp_path_factory.mktemp("packages")
    (folder / "moonrail").symlink_to(Path(moonrail.__file__).parent)
    return folder


@pytest.fixture(params=[OLD.name, LATEST, "moonrail"])
def two(request: pytest.FixtureRequest, packages: Path, tmp_path: Path) -> Iterator[Two]:
    try:
        home = environments.moonrail() if request.param == "moonrail" else environments.genuine(request.param)
    except Unavailable as error:
        pytest.skip(str(error))
    pair = Two(home, packages, tmp_path)
    try:
        yield pair
    finally:
        pair.close()


def scattered(count: int, seed: int) -> list[tuple[int, int, int]]:
    """Pieces of many sizes, 0 among them, in another order at each side."""
    chance = random.Random(seed)
    stride = LENGTH // count
    places = list(range(count))
    chance.shuffle(places)
    sizes = [0 if index % 17 == 3 else chance.randrange(1, stride) for index in range(count)]
    return [
        (index * stride, place * stride, size) for index, (place, size) in enumerate(zip(places, sizes, strict=True))
    ]


def test_the_same_batches_over_every_engine(two: Two, request: pytest.FixtureRequest) -> None:
    engine = request.node.callspec.params["two"]
    assert two.about["moonrails"] == (engine == "moonrail"), two.about
    missing = {"batch_register_memory", "batch_transfer_sync_write", "send_probe"} - set(two.about["provides"])
    assert missing == (
        {"batch_register_memory", "batch_transfer_sync_write", "send_probe"} if engine == OLD.name else set()
    )
    assert any("call by call" in lack for lack in two.about["lacks"]) == (engine == OLD.name)
    assert any("data protocol v1" in lack for lack in two.about["lacks"]) == (engine == OLD.name)
    half = LENGTH // 2
    assert two.far.call("batch_register", [two.sink, two.sink + half], [half, half]) == {"result": 0}
    assert two.far.call("batch_deregister", [two.sink, two.sink + half]) == {"result": 0}
    assert two.far.call("register", two.sink, LENGTH) == {"result": None}
    assert two.near.call("register", two.source, LENGTH) == {"result": None}
    two.far.ask("log"), two.near.ask("log")

    assert two.near.call("transfer_sync", two.session, two.source, two.sink, 5000) == {"result": 0}
    two.expected[:5000] = two.bytes[:5000]
    for count in (1, 60, 300):
        assert two.write(scattered(count, count)) == {"result": 0}
    assert two.arrived()
    assert two.write([]) == {"result": 0}
    assert two.near.call("send_probe", two.session) == {"result": 0}
    assert two.near.ask("log") == []


def test_a_batch_that_the_newest_engine_rejects_goes_through(two: Two, request: pytest.FixtureRequest) -> None:
    """5120 descriptors: 32 scattered pages times 160 buffers, as SGLang sends them for a Llama of 70 billion parameters."""
    two.far.call("register", two.sink, LENGTH)
    two.near.call("register", two.source, LENGTH)
    moves = scattered(5120, 7)
    assert two.write(moves) == {"result": 0}
    assert two.arrived()
    if request.node.callspec.params["two"] == LATEST:
        lists = [[two.source + m[0] for m in moves], [two.sink + m[1] for m in moves], [m[2] for m in moves]]
        code = two.near.ask("raw", method="batch_transfer_sync_write", arguments=[two.session, *lists])
        assert code != 0, "the engine takes such a batch by now: then the adapter need not cut it"


def test_failures_say_which_and_why_once(two: Two) -> None:
    two.far.call("register", two.sink, LENGTH)
    two.near.call("register", two.source, LENGTH)
    two.near.ask("log")
    # Wrong lists never reach the engine, some of which read beyond their ends.
    assert two.near.call("batch_register", [1, 2], [1])["result"] == -1
    assert [line for line in two.near.ask("log") if "differ in length" in line] != []
    # A region that overlaps, and what came before it is taken back.
    other = two.near.ask("allocate", name="other", length=4096, seed=5)
    assert two.near.call("batch_register", [other, two.source], [4096, LENGTH])["result"] < 0
    lines = two.near.ask("log")
    assert len(lines) == 1, lines
    assert lines[0].startswith("ERROR")
    assert two.near.call("register", other, 4096) == {"result": None}, "the first region was not taken back"
    raised = two.near.call("register", other, 4096)
    assert raised["code"] == "ADDRESS_OVERLAPPED", raised
    assert "registration failed (ret=-" in raised["raised"]
    assert len(two.near.ask("log")) == 1
    # The third of four pieces cannot be: the failure names the batch's peer, and is told once.
    arguments = [two.session, [two.source] * 4, [two.sink, two.sink + 4096, -5, two.sink + 8192], [4096] * 4]
    assert two.near.call("batch_transfer_sync", *arguments)["result"] < 0
    lines = two.near.ask("log")
    assert len(lines) == 1, lines
    assert two.session in lines[0]
    # A dead peer: told as such, and a probe agrees.
    two.far.kill()
    assert two.near.call("transfer_sync", two.session, two.source, two.sink, 100)["result"] < 0
    lines = two.near.ask("log")
    assert len(lines) == 1, lines
    assert "refused" in lines[0] or "UNREACHABLE" in lines[0], lines
    assert two.near.call("send_probe", two.session) == {"result": -102}
    assert two.near.ask("log") == []


def test_the_oldest_engine_stops_at_the_first_failure(packages: Path, tmp_path: Path) -> None:
    try:
        two = Two(environments.genuine(OLD.name), packages, tmp_path)
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        two.far.call("register", two.sink, LENGTH)
        arguments = [two.session, [two.source] * 4, [two.sink, two.sink + 4096, -5, two.sink + 8192], [4096] * 4]
        assert two.near.call("batch_transfer_sync", *arguments)["result"] < 0
        [line] = [line for line in two.near.ask("log") if line.startswith("ERROR")]
        assert "range 2 (the 2 before it were moved)" in line
        for place in (0, 4096):
            two.expected[place : place + 4096] = two.bytes[:4096]
        assert two.arrived(), "the two before were not moved, or the one behind was"
        told = two.near.ask(
            "start_requiring", names=["mooncake-v2", "transfer_sync_write", "batch_transfer_sync_write"]
        )
        for part in ("mooncake-v2", "batch_transfer_sync_write", "0.3.4", "upgrade"):
            assert part in told, told
        assert " transfer_sync_write:" not in told
        assert two.near.call("get_engine")["code"] == "MISSING_CAPABILITY"
    finally:
        two.close()

"""What importing does: little, and quickly."""

from __future__ import annotations

import itertools
import json
import re
import subprocess

import pytest
from moonrail import _moonrail

from .support import output


@pytest.mark.parametrize("module", ["moonrail", "moonrail.mooncake"])
def test_import_has_no_side_effects(module: str) -> None:
    code = f"""
import json, os, signal, sys
def state():
    handlers = [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())]
    caught = [line for line in open("/proc/self/status") if line.startswith(("SigCgt", "SigIgn", "SigBlk"))]
    return dict(handlers=handlers, caught=caught, threads=len(os.listdir("/proc/self/task")),
                files=len(os.listdir("/proc/self/fd")), environment=dict(os.environ), path=list(sys.path))
before = state()
import {module}
after = state()
print(json.dumps([name for name in before if before[name] != after[name]]))
"""
    assert json.loads(output(code)) == []


@pytest.mark.parametrize("module", ["moonrail", "moonrail.mooncake"])
def test_import_is_quick(module: str) -> None:
    code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
    assert min(float(output(code)) for _ in range(5)) < 0.05


def test_import_needs_neither_numpy_nor_asyncio() -> None:
    code = "import sys, moonrail, moonrail.mooncake; print([name for name in ('numpy', 'asyncio', 'torch', 'ctypes') if name in sys.modules])"
    assert output(code) == "[]"


def test_nothing_is_printed() -> None:
    code = """
from moonrail.mooncake import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
address = engine.allocate_managed_buffer(100)
assert engine.transfer_sync_write(f"127.0.0.1:{engine.get_rpc_port()}", address, address, 100) == 0
"""
    from .support import run

    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_library_needs_nothing_but_the_c_library() -> None:
    """No GPU runtime, no verbs, no C++: what is not there at import must not be missed."""
    listed = subprocess.run(["readelf", "--dynamic", _moonrail.__file__], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"NEEDED.*\[(.+?)\]", listed.stdout))
    assert "libc.so.6" in needed
    c_library = r"libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1|libgcc_s\.so\.1|ld-linux.*"
    assert not [name for name in needed if not re.fullmatch(c_library, name)]


MODULES = ("moonrail", "moonrail.mooncake", "mooncake.engine")


@pytest.mark.parametrize("order", list(itertools.permutations(MODULES)))
def test_the_order_of_imports_does_not_matter(order: tuple[str, ...]) -> None:
    code = f"""
import importlib
for name in {order!r}:
    importlib.import_module(name)
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
"""
    assert output(code) == ""

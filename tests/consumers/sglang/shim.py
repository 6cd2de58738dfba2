"""Loads SGLang's own mooncake_transfer_engine.py without torch.

SGLang's package `__init__` files import torch: three of them are passed over here, and one function of
`sglang.srt.utils.common` is given. Everything else that is imported is SGLang's own file, unchanged. Must not know
the engine.

`SGLANG_ROOT` is the folder where the wheel of sglang 0.5.23 was unpacked. Needs numpy, msgspec, psutil and pyzmq.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import types
from collections.abc import Callable
from typing import Any


def load(root: str | None = None) -> types.ModuleType:
    """SGLang's wrapper module."""
    root = root or os.environ["SGLANG_ROOT"]
    package("sglang", root, "sglang")
    package("sglang.srt.utils", root, "sglang", "srt", "utils")
    package("sglang.srt.distributed", root, "sglang", "srt", "distributed")
    common = types.ModuleType("sglang.srt.utils.common")
    common.run_with_deadline = run_with_deadline  # type: ignore[attr-defined]
    sys.modules[common.__name__] = common
    return importlib.import_module("sglang.srt.distributed.device_communicators.mooncake_transfer_engine")


def package(name: str, root: str, *parts: str) -> None:
    """A package whose `__init__` is not run."""
    module = types.ModuleType(name)
    module.__path__ = [os.path.join(root, *parts)]
    sys.modules[name] = module


def run_with_deadline(fn: Callable[[], Any], *, timeout_s: float, what: str) -> Any:
    """As SGLang's: the function in a daemon thread, and an error when it takes too long."""
    box: list[Any] = []
    thread = threading.Thread(target=lambda: box.append(fn()), daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not box:
        raise TimeoutError(what)
    return box[0]

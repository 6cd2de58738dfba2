"""SGLang's wrapper over an engine that lacks the batched calls: prints the tracebacks of both. Run by a test."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

os.environ.setdefault("MC_FORCE_TCP", "1")
os.environ.setdefault("MOONCAKE_PROTOCOL", "tcp")

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.consumers.sglang import shim


def main() -> None:
    engine = shim.load().MooncakeTransferEngine(hostname="127.0.0.1", gpu_id=0)
    for call, arguments in (
        (engine.batch_transfer_sync, ("127.0.0.1:1", [1], [1], [1])),
        (engine.batch_register, ([1], [1])),
    ):
        try:
            call(*arguments)
        except RuntimeError:
            traceback.print_exc()
    # This release takes its time to end.
    os._exit(0)


main()

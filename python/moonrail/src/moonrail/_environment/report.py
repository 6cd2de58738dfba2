"""All of it, as one JSON object on standard output: ``{"facts": ..., "findings": [...]}``."""

from __future__ import annotations

import json

from .facts import gather
from .judge import judge


def main(argument: str) -> int:
    """Prints the report; `argument` is ``{"since": {METHOD: RELEASE}}``."""
    since = json.loads(argument)["since"]
    facts = gather(set(since))
    print(json.dumps({"facts": facts, "findings": judge(facts, since)}))
    return 0

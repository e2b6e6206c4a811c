"""A child for `test_workers`: what it does is in the question."""

from __future__ import annotations

import os
import time
from typing import Any

from trl_mentor.workers import serve


def main() -> None:
    serve(answer, warm_up=lambda: None, cpu_seconds=0.5, memory=1024**3)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    match question["do"]:
        case "echo":
            return {"echo": question["text"]}
        case "environment":
            return {"names": sorted(os.environ), "nice": os.nice(0)}
        case "spin":
            while True:
                pass
        case "sleep":
            time.sleep(60)
        case "end":
            os._exit(3)
        case "print":
            print('{"id": 1, "echo": "printed"}', flush=True)
        case "hoard":
            try:
                return {"got": len(bytearray(2 * 1024**3))}
            except MemoryError:
                return {"got": 0}
    return {}

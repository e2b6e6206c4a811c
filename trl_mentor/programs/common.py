"""Names that programs may use without importing them, as the test benches of contest problems provide them."""

from __future__ import annotations

import builtins
from functools import lru_cache
from importlib import import_module

MODULES = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "typing",
)  # fmt: skip
"""What LiveCodeBench imports for a program, whole and by `from ... import *`, in its order. Its code for starting
points says `List[int]`, which nothing else would define."""

_METHODS = {name for kind in (str, list, dict, set, bytes, int) for name in dir(kind)}


def common_names(*, but: str) -> dict[str, tuple[str, str]]:
    """Name -> its module and its name there; "" for the module itself.

    Without the name that the program is asked to define, as `median`, which would be there without a program.
    """
    return {name: place for name, place in _all_names().items() if name != but}


@lru_cache(maxsize=1)
def _all_names() -> dict[str, tuple[str, str]]:
    """Names of builtins stay what they are; names of methods such as `split` would cost an import at every use."""
    found: dict[str, tuple[str, str]] = {}
    for module in MODULES:
        there = import_module(module)
        public = getattr(there, "__all__", None) or [name for name in dir(there) if not name.startswith("_")]
        found |= {name: (module, name) for name in public if name not in _METHODS and not hasattr(builtins, name)}
    return found | {module: (module, "") for module in MODULES}

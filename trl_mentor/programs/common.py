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


@lru_cache(maxsize=1)
def common_names() -> dict[str, tuple[str, str]]:
    """Name -> its module and its name there; "" for the module itself.

    Names of builtins stay those of builtins. Left out are names of methods such as `split`, whose every use would cost
    the import of `re`.
    """
    found: dict[str, tuple[str, str]] = {}
    for module in MODULES:
        there = import_module(module)
        public = getattr(there, "__all__", None) or [name for name in dir(there) if not name.startswith("_")]
        found |= {name: (module, name) for name in public if name not in _METHODS and not hasattr(builtins, name)}
    return found | {module: (module, "") for module in MODULES}

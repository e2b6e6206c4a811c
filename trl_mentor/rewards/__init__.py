"""Verifiable rewards with the signature of TRL: mathematics, programs, options and the form of an answer.

They are imported when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "boxed_format_reward": "form",
    "choice_reward": "choice",
    "code_fraction_reward": "code",
    "code_reward": "code",
    "math_reward": "math",
}

__all__ = [
    "boxed_format_reward",
    "choice_reward",
    "code_fraction_reward",
    "code_reward",
    "math_reward",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

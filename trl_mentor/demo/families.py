"""The nine task families: one easy, five that need one concept, three that need two."""

from __future__ import annotations

import random
from collections.abc import Collection

from trl_mentor.demo.concepts import AT_LEAST, LAST, MULTIPLE, RANGE, ROUND_DOWN, Concept

FAMILIES: dict[str, tuple[Concept, ...]] = {
    "easy": (),
    "range": (RANGE,),
    "at_least": (AT_LEAST,),
    "last": (LAST,),
    "round_down": (ROUND_DOWN,),
    "multiple": (MULTIPLE,),
    "range+multiple": (RANGE, MULTIPLE),
    "last+at_least": (LAST, AT_LEAST),
    "at_least+round_down": (AT_LEAST, ROUND_DOWN),
}
"""Family name -> the concepts that its problems need."""

_REDUCTIONS = {
    "total": "sum ( {} )",
    "largest": "max ( {} )",
    "smallest": "min ( {} )",
    "list": "[ {} ]",
}


def write_specification(rng: random.Random, family: str) -> tuple[str, str]:
    """A random question of a family and its naive program."""
    needed = FAMILIES[family]
    words, code = _element(rng, needed)
    number = rng.randint(2, 9)
    few = rng.randint(2, 5)
    if RANGE in needed:
        words, code = f"{words} for x from {number} to n", f"{code} for x in range ( {number} , n )"
    elif LAST in needed:
        words, code = f"{words} for x in the last {few} of xs", f"{code} for x in xs [ {few} : ]"
    elif not needed and rng.random() < 0.5:
        words, code = f"{words} for x in the first {few} of xs", f"{code} for x in xs [ : {few} ]"
    else:
        words, code = f"{words} for x in xs", f"{code} for x in xs"
    number = rng.randint(2, 9)
    if AT_LEAST in needed:
        words, code = f"{words} with x at least {number}", f"{code} if x > {number}"
    elif MULTIPLE in needed:
        words, code = f"{words} with x a multiple of {number}", f"{code} if x % {number}"
    elif not needed and rng.random() < 0.5:
        words, code = f"{words} with x less than {number}", f"{code} if x < {number}"
    reduction = rng.choice(sorted(_REDUCTIONS))
    return f"Spec: {reduction} of {words}?", _REDUCTIONS[reduction].format(code)


def _element(rng: random.Random, needed: Collection[Concept]) -> tuple[str, str]:
    """What is done to each `x`, in words and in code: divided, multiplied, then shifted, each of them optional."""
    words, code = "x", "x"
    if ROUND_DOWN in needed:
        divisor = rng.randint(2, 9)
        words, code = f"x over {divisor} rounded down", f"x / {divisor}"
    if rng.random() < 0.5:
        factor = rng.randint(2, 9)
        words, code = f"{words} times {factor}", f"{code} * {factor}"
    if rng.random() < 0.8:
        shift = rng.randint(2, 9)
        name, sign = rng.choice((("plus", "+"), ("minus", "-")))
        words, code = f"{words} {name} {shift}", f"{code} {sign} {shift}"
    return words, code

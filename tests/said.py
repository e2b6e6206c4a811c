"""What a scripted mentor says, in the form that its role is asked for."""

from __future__ import annotations

import json


def diagnosis(*misconceptions: str) -> str:
    return json.dumps({"misconceptions": misconceptions})


def verdict(word: str, critique: str = "fine") -> str:
    return json.dumps({"critique": critique, "verdict": word})


def repaired(hint: str) -> str:
    return json.dumps({"hint": hint})

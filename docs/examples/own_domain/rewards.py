"""The verifier of the example domain: it runs the query, and tells the mentor what failed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

_FENCED = re.compile(r"```(?:sql|python)?\s*\n(.*?)```", re.DOTALL)
_STEPS = 100_000
"""Steps of SQLite's machine after which a query is given up."""


def query_result(
    completions: list[Any], tables: list[str], answer: list[str], log_extra: Callable[..., None], **kwargs: Any
) -> list[float]:
    """1.0 for each completion whose query returns the rows of the reference query, in any order, else 0.0.

    `tables` is the SQL that fills the database. What went wrong is reported for the mentor.
    """
    rewards, feedback = [], []
    for completion, setup, reference in zip(completions, tables, answer, strict=True):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        found, problem = run(query_of(text), setup)
        wanted, _ = run(reference, setup)
        right = not problem and sorted(found, key=repr) == sorted(wanted, key=repr)
        rewards.append(float(right))
        # The mentor's answer slot holds the reference already; here stands only what the student's query did.
        feedback.append(None if right else problem or f"the query returned {len(found)} rows: {found[:5]}")
    log_extra("mentor/feedback", feedback)
    return rewards


def query_of(text: str) -> str:
    """The last fenced block of a completion, or all of it."""
    blocks = _FENCED.findall(text)
    return blocks[-1] if blocks else text


def run(query: str, setup: str) -> tuple[Sequence[Any], str]:
    """The rows of a query and no problem, or no rows and what the problem was. The query can only read."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(setup)
        allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
        database.set_authorizer(lambda kind, *_: sqlite3.SQLITE_OK if kind in allowed else sqlite3.SQLITE_DENY)
        database.set_progress_handler(lambda: 1, _STEPS)
        try:
            return database.execute(query).fetchmany(1_000), ""
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            return [], f"the query failed: {error}"

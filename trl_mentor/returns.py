"""Prompts that collapsed before and come round in training: which of a batch they are, and how they are answered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trl_mentor.books import Books
from trl_mentor.collapse import SuccessRule
from trl_mentor.counters import Counters
from trl_mentor.exchange import Exchange
from trl_mentor.group_reader import GroupReader
from trl_mentor.transfer import question_key, returned, transfer


def returning(
    examples: Mapping[int, Mapping[str, Any]],
    books: Books,
    reader: GroupReader,
    *,
    apart_from: Collection[int],
    start: int,
    size: int,
    step: int,
) -> list[tuple[int, str]]:
    """Group index and key of the remembered prompts among this rank's, whose rows begin at `start`.

    `examples` are the first rows of groups, by their place on this rank. Rows that were not asked plainly are left out
    with `apart_from`: what they answer does not say what is known without help.
    """
    if not len(books.memory):
        return []
    keys = [
        ((start + i) // size, question_key(row["prompt"], reader.answer(row)))
        for i, row in examples.items()
        if i not in apart_from
    ]
    return [(index, key) for index, key in keys if books.memory.has(key, before=step)]


def see_returns(
    mine: Sequence[tuple[int, str]],
    values: Sequence[float],
    books: Books,
    exchange: Exchange,
    rule: SuccessRule,
    *,
    size: int,
    step: int,
) -> Counters:
    """Note how remembered prompts, this rank's given, were answered this time; every rank forgets them.

    `values` are the success rewards of all rows of all ranks.
    """
    answers = [(key, values[i * size : (i + 1) * size]) for i, key in exchange.gather(list(mine))]
    found = returned(answers, books.recall, rule, step=step)
    books.note_returns(found)
    return Counters(transfer=transfer(found))

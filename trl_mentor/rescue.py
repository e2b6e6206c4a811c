"""How the rows of a re-rolled group are built: pure functions from (original rows, re-rolled rows) to rows."""

from __future__ import annotations

from collections.abc import Sequence

from trl_mentor.records import Row


def replace(original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
    """The paper's construction: the re-rolled group takes the place of the collapsed one.

    Each row keeps the prompt it was sampled under, so advantages are computed inside the new group and the loss is
    on-policy (section 3.3 of the paper).
    """
    if len(original) != len(rerolled):
        raise ValueError(f"the re-rolled group has {len(rerolled)} rows, the original {len(original)}")
    return list(rerolled)

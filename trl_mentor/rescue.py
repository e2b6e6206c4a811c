"""How the rows of a re-rolled group are built: pure functions from (original rows, re-rolled rows) to rows.

Notation: G original rows o_1 ... o_G under the question q, which all failed; G re-rolled rows h_1 ... h_G under
q' = hint + q, k of which succeed. Every construction returns G rows, because TRL has fixed the size of its batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from trl_mentor.errors import ConfigError
from trl_mentor.records import Prompt, Roll, Row, Weighting


class Rescue(StrEnum):
    """Which rows are trained."""

    REPLACE = "replace"  # the re-rolled group in place of the original one (the paper)
    SINGLE = "single"  # one success in place of one original failure
    MIXED = "mixed"  # the re-rolled group, of which one row was sampled without the hint
    UNION_SUCCESS = "union_success"  # original failures and successes, in the shares of their union
    ADAPTIVE = (
        "adaptive"  # the paper's group if some succeed and some fail, that union under the question if none fails
    )


class ScoreOn(StrEnum):
    """Under which prompt re-rolled rows are scored by the loss."""

    HINTED = "hinted"  # the one that they were sampled under
    ORIGINAL = "original"  # the question without the hint


class Preset(StrEnum):
    """Constructions by name."""

    PAPER = "paper"  # replace, hinted
    ROBUST = "robust"  # single, original, quoted hints cut out


@dataclass(frozen=True, slots=True)
class Construction:
    """One way to build the rows that are trained. Raises `ConfigError` for a combination that means nothing."""

    rescue: Rescue = Rescue.REPLACE
    score_on: ScoreOn = ScoreOn.HINTED
    shaped: bool = False
    """Whether rows that are scored under another prompt are weighed as `Weighting.SHAPED` says."""

    def __post_init__(self) -> None:
        if self.rescue is Rescue.ADAPTIVE and self.score_on is ScoreOn.ORIGINAL:
            raise ConfigError(
                "mentor_rescue='adaptive' itself decides under which prompt each group is scored; leave "
                "mentor_score_on out, or choose 'replace', 'single', 'mixed' or 'union_success'"
            )
        if self.shaped and self.score_on is ScoreOn.HINTED and self.rescue is not Rescue.ADAPTIVE:
            raise ConfigError(
                "mentor_rescue_shaping='luffy' weighs rows that are scored on the question alone, and with "
                "mentor_score_on='hinted' there are none; choose mentor_score_on='original' or leave the shaping out"
            )

    def __str__(self) -> str:
        return f"{self.rescue}, {self.score_on}{', shaped' * self.shaped}"

    def rolls(self, hinted: Prompt, hint: str, plain: Prompt, size: int) -> tuple[Roll, ...]:
        """What the rows of a re-roll are sampled under; empty where all are under the hint."""
        if self.rescue is not Rescue.MIXED:
            return ()
        return (*(Roll(hinted, hint) for _ in range(size - 1)), Roll(plain))

    def rows(self, original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
        """As many rows as `original`. The same rows give the same result on every rank."""
        if len(original) != len(rerolled):
            raise ValueError(f"the re-rolled group has {len(rerolled)} rows, the original {len(original)}")
        built = _BUILD[self.rescue](original, rerolled)
        rows = scored_under(original, built) if self.score_on is ScoreOn.ORIGINAL else built
        return with_weighting(rows, Weighting.SHAPED) if self.shaped else rows

    @classmethod
    def named(cls, preset: str, rescue: str | None, score_on: str | None, *, shaped: bool = False) -> Construction:
        """The construction of a preset, of which some parts are chosen otherwise."""
        base = PRESETS[Preset(preset)]
        chosen = base.rescue if rescue is None else Rescue(rescue)
        if score_on is not None:
            return cls(chosen, ScoreOn(score_on), shaped)
        return cls(chosen, shaped=shaped) if chosen is Rescue.ADAPTIVE else cls(chosen, base.score_on, shaped)


PAPER = Construction()
PRESETS: Mapping[Preset, Construction] = {
    Preset.PAPER: PAPER,
    Preset.ROBUST: Construction(Rescue.SINGLE, ScoreOn.ORIGINAL),
}


def replace_group(original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
    """The paper's construction (section 3.3): h_1 ... h_G, with advantages among themselves."""
    return list(rerolled)


def single(original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
    """G - 1 of the original rows and one success, drawn by lot; the original rows if k = 0.

    Insensitive to hints that make every completion succeed. Scaf-GRPO (arXiv 2510.19807) replaces one row in this way.
    """
    return _with_successes(original, rerolled, lambda successes: 1)


def union_success(original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
    """A stratified sample of G rows of the union of G failures and k successes; the original rows if k = 0.

    The union has G + k rows, which TRL's batch does not hold. Of the G rows here k' = max(1, round(G k / (G + k)))
    are successes, the share that they have in the union, so that the advantages are about those of the union.
    """
    size = len(original)
    return _with_successes(original, rerolled, lambda k: max(1, round(size * k / (size + k))))


def adaptive(original: Sequence[Row], rerolled: Sequence[Row]) -> list[Row]:
    """The paper's group while its own successes and failures give it a gradient, else failures and successes under q.

    The original rows if k = 0.
    """
    if {True, False} <= {row.success for row in rerolled}:
        return replace_group(original, rerolled)
    return scored_under(original, union_success(original, rerolled))


def scored_under(original: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """The same rows, scored under the prompt of the original ones.

    TRL computes masks, old and reference log-probabilities from the prompt of the row. Those of sampling belong to the
    other prompt: they become NaN, "not known", for which TRL's correction of vLLM's sampling is a ratio of exactly 1.
    """
    prompt = original[0].prompt_ids
    return [row if row.prompt_ids == prompt else _moved(row, prompt) for row in rows]


def with_weighting(rows: Sequence[Row], weighting: Weighting) -> list[Row]:
    """The same rows, of which those off context are weighed in this way by the loss."""
    return [replace(row, weighting=weighting) if row.off_context else row for row in rows]


def _moved(row: Row, prompt: list[int]) -> Row:
    unknown = None if row.logprobs is None else [math.nan] * len(row.completion_ids)
    return replace(row, prompt_ids=prompt, logprobs=unknown, off_context=True)


def _with_successes(original: Sequence[Row], rerolled: Sequence[Row], number: Callable[[int], int]) -> list[Row]:
    """The original rows, some of which, drawn by lot, give way to as many successes as `number` says of k.

    Rows that could not be scored give way first: a failure has to stay, or the successes would have no advantage. The
    lot is drawn from the rows themselves, which all ranks hold, so that it needs no state and falls equally on each.
    """
    successes = [row for row in rerolled if row.success is True]
    rows = list(original)
    if not successes:
        return rows
    lot = Random(repr([row.completion_ids for row in (*original, *rerolled)]))
    chosen = lot.sample(successes, number(len(successes)))
    order = sorted(range(len(rows)), key=lambda place: (rows[place].success is not None, lot.random()))
    for place, row in zip(order, chosen, strict=False):
        rows[place] = row
    return rows


_BUILD: Mapping[Rescue, Callable[[Sequence[Row], Sequence[Row]], list[Row]]] = {
    Rescue.REPLACE: replace_group,
    Rescue.MIXED: replace_group,  # its rows differ where they are sampled: `Construction.rolls`
    Rescue.SINGLE: single,
    Rescue.UNION_SUCCESS: union_success,
    Rescue.ADAPTIVE: adaptive,
}

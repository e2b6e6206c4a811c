"""The `mentor_*` settings of strategies other than the paper's, and of how rows are weighed and rounds follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from trl_mentor.assembly import check_critique_template
from trl_mentor.setting_checks import (
    check,
    check_choice,
    check_flag,
    check_template,
    check_text,
    is_number,
    is_whole,
)

DEFAULT_CRITIQUE_TEMPLATE = "{question}\n\nYour earlier answer:\n{attempt}\n\nCritique:\n{critique}\n\nAnswer again."


class Shaping(StrEnum):
    """How rows are weighed that are scored under a prompt that they were not sampled under."""

    NONE = "none"
    LUFFY = "luffy"


class StaticHint(StrEnum):
    """What `static_hint` adds to a prompt."""

    HINT = "hint"  # HINT: a hint written before the run, for groups that collapsed
    PREFIX = "prefix"  # QuestA: the beginning of a solution, for every group


class CritiqueKind(StrEnum):
    """What `critique` says of an attempt."""

    SIMPLE = "simple"  # whether it is right
    SIMPLE_GT = "simple_gt"  # that, and the reference answer
    TEXT = "text"  # what the mentor writes


_THAT_SELECT = ("mentor", "dapo", "static_hint", "scaffold", "luffy", "critique")

READERS = {
    "mentor_hint_column": ("static_hint", "scaffold"),
    "mentor_demonstration_column": ("prefix", "luffy"),
    "mentor_static_hint": ("static_hint", "prefix"),
    "mentor_prefix_shares": ("prefix",),
    "mentor_affinity": ("static_hint",),
    "mentor_dapo_refill": ("dapo",),
    "mentor_critique": ("critique",),
    "mentor_critique_template": ("critique",),
    "mentor_shaping_gamma": ("mentor", "luffy", "critique"),
    "mentor_routes": ("mentor",),
    "mentor_hint_template": ("mentor", "static_hint", "scaffold"),
    "mentor_control_fraction": ("mentor", "static_hint", "scaffold", "critique"),
    "mentor_generic_fraction": ("mentor",),
    "mentor_hint_reliance": ("mentor", "static_hint", "scaffold", "critique"),
    "mentor_strip_echo": ("mentor", "static_hint", "critique"),
    "mentor_start_step": _THAT_SELECT,
    "mentor_decay": _THAT_SELECT,
}
"""The methods that read a setting, which does nothing with others; `prefix` is `static_hint` with that kind of hint.

`none` and `resample` are left out: these are controls, which a script runs with the settings of what they are compared
with."""


@dataclass
class StrategyArguments:
    """Settings of single strategies; each says which one reads it."""

    mentor_max_rounds: int | None = field(
        default=None,
        metadata={
            "help": "Of `mentor`, `resample` and `dapo`: most re-rolls of one group in a batch. While none of its "
            "completions succeeds (with `dapo`, while all are alike), it is re-rolled again, under another hint with "
            "`mentor`, which is written with the hints before in view. Default: 1, and 10 for `dapo`."
        },
    )
    mentor_rescue_shaping: str = field(
        default="none",
        metadata={
            "help": "Of `mentor` and `resample`: weight of the tokens of rows that are scored on the question alone: "
            "`none`, or `luffy`, which favours those that the policy finds unlikely. See docs/rescue.md."
        },
    )
    mentor_shaping_gamma: float = field(
        default=0.1, metadata={"help": "gamma of the shaping p / (p + gamma), of `luffy`, `critique` and the above."}
    )
    mentor_hint_column: str | None = field(
        default=None,
        metadata={
            "help": "Data set column with hints written before the run, for `static_hint` (a text) and `scaffold` (a "
            "list from weak to strong). Default: `hint` and `hints`."
        },
    )
    mentor_demonstration_column: str | None = field(
        default=None,
        metadata={
            "help": "Data set column with worked solutions, for `luffy` and for `static_hint` with `prefix`. Default: "
            "`demonstration`."
        },
    )
    mentor_static_hint: str = field(
        default="hint",
        metadata={
            "help": "Of `static_hint`: `hint` (HINT: collapsed groups are re-rolled under a hint of the data set) or "
            "`prefix` (QuestA: every prompt ends with the beginning of its solution)."
        },
    )
    mentor_prefix_shares: list[float] = field(
        default_factory=lambda: [0.5, 0.25],
        metadata={
            "help": "Of `static_hint` with `prefix`: shares of the solution that are shown, each for an equal part of "
            "the run's steps."
        },
    )
    mentor_affinity: float = field(
        default=1.0,
        metadata={"help": "Of `static_hint` with `hint`: exponent of HINT's affinity, a weight of the loss. 0: none."},
    )
    mentor_dapo_refill: bool = field(
        default=True,
        metadata={
            "help": "Of `dapo`: fill the place of a group without an advantage with other prompts of the data set; "
            "false: sample its own prompt again."
        },
    )
    mentor_critique: str = field(
        default="simple_gt",
        metadata={
            "help": "Of `critique`: `simple` (right or wrong), `simple_gt` (also the reference answer) or `text` "
            "(what the mentor writes)."
        },
    )
    mentor_critique_template: str = field(
        default=DEFAULT_CRITIQUE_TEMPLATE,
        metadata={"help": "Of `critique`: text of the last user turn of a refinement; {attempt} may be left out."},
    )
    mentor_skip_empty_steps: bool = field(
        default=False,
        metadata={
            "help": "Leave the weights alone in optimizer steps in which no completion has a gradient, in which "
            "momentum would move them. See docs/dosage.md."
        },
    )

    def check_strategies(self) -> None:
        """Raise `ConfigError` for a wrong value."""
        rounds = self.mentor_max_rounds
        if rounds is not None:
            check(is_whole(rounds) and rounds >= 1, "mentor_max_rounds", "a whole number of at least 1", rounds)
        for name, kinds in (
            ("mentor_rescue_shaping", Shaping),
            ("mentor_static_hint", StaticHint),
            ("mentor_critique", CritiqueKind),
        ):
            check_choice(name, getattr(self, name), kinds)
        check_template("mentor_critique_template", self.mentor_critique_template, check_critique_template)
        for name in ("mentor_hint_column", "mentor_demonstration_column"):
            check_text(name, getattr(self, name), "the name of a column")
        for name in ("mentor_dapo_refill", "mentor_skip_empty_steps"):
            check_flag(name, getattr(self, name))
        gamma, affinity, shares = self.mentor_shaping_gamma, self.mentor_affinity, self.mentor_prefix_shares
        check(is_number(gamma) and gamma > 0, "mentor_shaping_gamma", "a positive number", gamma)
        check(is_number(affinity) and affinity >= 0, "mentor_affinity", "a number of at least 0", affinity)
        are_shares = isinstance(shares, list) and bool(shares) and all(is_number(s) and 0 < s < 1 for s in shares)
        check(are_shares, "mentor_prefix_shares", "shares between 0 and 1", shares)

"""The `mentor_*` settings as a plain dataclass, so that they can be read and checked without TRL."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from trl_mentor.assembly import DEFAULT_HINT_TEMPLATE, check_hint_template
from trl_mentor.budget_limits import read_limits, read_prices, refuse_batch_limits
from trl_mentor.causes import check_routes
from trl_mentor.dosage import Decay, check_start
from trl_mentor.errors import ConfigError
from trl_mentor.records import Ablation
from trl_mentor.rescue import PAPER, Construction, Preset, Rescue, ScoreOn
from trl_mentor.setting_checks import (
    check,
    check_choice,
    check_flag,
    check_template,
    check_text,
    is_number,
    is_whole,
    json_object,
)
from trl_mentor.strategy_settings import CritiqueKind, Shaping, StaticHint, StrategyArguments

_COUNTS = (
    "mentor_max_retry",
    "mentor_max_refine",
    "mentor_max_tokens",
    "mentor_max_concurrency",
    "mentor_attempt_budget",
    "mentor_queue_size",
    "mentor_pause_after",
    "mentor_probe_prompts",
)

_OBJECTS = ("mentor_extra_body", "mentor_thinking", "mentor_routes", "mentor_budget", "mentor_prices")


class BackendKind(StrEnum):
    """Kinds of mentor that a recipe can name; anything else is passed to the trainer as an object."""

    OPENAI = "openai"
    TRANSFORMERS = "transformers"
    VLLM = "vllm"


class RewardErrors(StrEnum):
    """What an exception in a reward function does."""

    RAISE = "raise"
    UNSCORABLE = "unscorable"


class ScheduleKind(StrEnum):
    """When a collapsed group gets its hint."""

    INLINE = "inline"
    AHEAD = "ahead"


class StrategyKind(StrEnum):
    """Strategies that a recipe can name; anything else is passed to the trainer as an object."""

    MENTOR = "mentor"
    RESAMPLE = "resample"
    NONE = "none"
    DAPO = "dapo"
    STATIC_HINT = "static_hint"
    SCAFFOLD = "scaffold"
    LUFFY = "luffy"
    CRITIQUE = "critique"
    SRPO = "srpo"


_WITH_AHEAD = (StrategyKind.MENTOR, StrategyKind.RESAMPLE, StrategyKind.NONE)
"""Strategies whose lessons can wait, as re-rolls of a whole group that are trained as they are."""
_WITH_ROUNDS = (StrategyKind.MENTOR, StrategyKind.RESAMPLE, StrategyKind.DAPO, StrategyKind.NONE)
"""Strategies that have something else to offer to a group that failed again; `NONE` shares their settings."""
_WITH_CONSTRUCTION = (StrategyKind.MENTOR, StrategyKind.RESAMPLE, StrategyKind.NONE)
"""Strategies for which a construction may be chosen: `NONE` has no use for it, but shares its settings with these."""
_CONSTRUCTION = ("mentor_preset", "mentor_rescue", "mentor_score_on", "mentor_rescue_shaping")
"""The settings that `MentorArguments.construction` reads."""


@dataclass
class MentorArguments(StrategyArguments):
    """Settings of the mentor, flat as TRL's are. Wrong values raise `ConfigError` on construction."""

    mentor_strategy: str = field(
        default="mentor",
        metadata={
            "help": "What to do with a collapsed group: `mentor` (hint and re-roll), `resample` (re-roll on the plain "
            "question, the control), `none` (only measure), or a rival: `dapo`, `static_hint`, `scaffold`, `luffy`, "
            "`critique`, `srpo`. See docs/strategies.md."
        },
    )
    mentor_schedule: str = field(
        default="inline",
        metadata={
            "help": "When hints are written: `inline` (the step waits for the hints of its own groups, as in the "
            "paper) or `ahead` (in the background; a lesson that is ready takes the place of a group that collapses "
            "later, and nothing waits)."
        },
    )
    mentor_preset: str = field(
        default="paper",
        metadata={
            "help": "Of `mentor` and `resample`: how a re-rolled group becomes training rows: `paper` (mentor_rescue "
            "replace, mentor_score_on hinted) or `robust` (single, original, mentor_strip_echo). See docs/rescue.md."
        },
    )
    mentor_rescue: str | None = field(
        default=None,
        metadata={
            "help": "Which rows are trained: `replace` (the re-rolled group), `single` (one success in place of one "
            "failure), `mixed` (the re-rolled group, one row of it without the hint), `union_success` (failures and "
            "successes in the shares of their union) or `adaptive` (the re-rolled group, but that union on the "
            "question if all succeed). Default: as mentor_preset says."
        },
    )
    mentor_score_on: str | None = field(
        default=None,
        metadata={
            "help": "Prompt under which the loss scores re-rolled rows: `hinted`, which they were sampled under, or "
            "`original`, the question alone. Default: as mentor_preset says."
        },
    )
    mentor_strip_echo: bool | None = field(
        default=None,
        metadata={
            "help": "Cut a hint that a completion quotes out of rows that are scored on the question alone. Default: "
            "as mentor_preset says."
        },
    )
    mentor_queue_size: int = field(
        default=64,
        metadata={"help": "With `ahead`: most groups that wait for a hint or a place; beyond, the oldest without go."},
    )
    mentor_start_step: float | None = field(
        default=None,
        metadata={
            "help": "No group is mentored before so many optimizer steps; below 1, a share of the run's steps. "
            "Default: 0, and 0.15 for `scaffold`. See docs/dosage.md."
        },
    )
    mentor_decay: str = field(
        default="none",
        metadata={
            "help": "`none` (from mentor_start_step on every collapsed group is mentored) or `linear` (by lot, a "
            "share that falls from 1 there to 0 at the end of the run)."
        },
    )
    mentor_backend: str = field(
        default="openai",
        metadata={
            "help": "Where the mentor runs: `openai` (any OpenAI-compatible endpoint), `transformers` or `vllm` (a "
            "local model in the main process)."
        },
    )
    mentor_model: str | None = field(
        default=None,
        metadata={"help": "Name of the mentor model at the endpoint, or its id or path for a local one."},
    )
    mentor_base_url: str | None = field(
        default=None,
        metadata={
            "help": "URL of the endpoint, for example http://localhost:8000/v1; several, separated by commas, share "
            "the work and stand in for each other."
        },
    )
    mentor_api_key_env: str | None = field(
        default=None,
        metadata={"help": "Name of the environment variable that holds the endpoint's key. Never the key itself."},
    )
    mentor_temperature: float = field(default=0.7, metadata={"help": "Sampling temperature of the mentor."})
    mentor_max_tokens: int = field(
        default=4096,
        metadata={"help": "Longest reply of the mentor in tokens, thinking included; a reply cut off there is lost."},
    )
    mentor_extra_body: dict[str, Any] | str | None = field(
        default=None,
        metadata={
            "help": "JSON object merged into every request to an endpoint, for example "
            '\'{"chat_template_kwargs": {"enable_thinking": false}}\'.'
        },
    )
    mentor_thinking: dict[str, Any] | str | None = field(
        default=None,
        metadata={
            "help": "JSON object that turns thinking on or off by role, for example "
            '\'{"judgment": true, "generation": false}\', through `enable_thinking` of the chat template. Default: as '
            "the endpoint does."
        },
    )
    mentor_domain: str = field(
        default="math",
        metadata={"help": "Templates and leak rules: `math`, `code`, `general`, or one from mentor_templates_dir."},
    )
    mentor_templates_dir: str | None = field(
        default=None, metadata={"help": "Directory whose <domain>/<role>.jinja files replace the package's own."}
    )
    mentor_leak_rule: str | None = field(
        default=None,
        metadata={
            "help": "Dotted path of a function that refuses hints by a rule of your own, beside those of the domain; "
            "see docs/domains.md."
        },
    )
    mentor_max_retry: int = field(
        default=2, metadata={"help": "Full hint attempts before the fallback hint (the paper's Max Retry)."}
    )
    mentor_max_refine: int = field(
        default=2,
        metadata={"help": "Judge rounds inside one attempt, with a repair between two (the paper's Max Refine)."},
    )
    mentor_ablation: str | None = field(
        default=None,
        metadata={"help": "One of the paper's ablations: `no_attribution`, `no_generation` or `no_judge`."},
    )
    mentor_hint_template: str = field(
        default=DEFAULT_HINT_TEMPLATE,
        metadata={"help": "Text of the last user turn of a re-roll; the order of the two slots is the placement."},
    )
    mentor_success_rewards: list[str] | None = field(
        default=None,
        metadata={
            "help": "Names of the reward functions that say right or wrong; each must exceed the threshold. Default: "
            "the weighted sum of all rewards."
        },
    )
    mentor_success_threshold: float = field(
        default=0.0, metadata={"help": "A completion fails if its success reward is not above this."}
    )
    mentor_format_rewards: list[str] | None = field(
        default=None,
        metadata={
            "help": "Names of the reward functions that pay for form. Default: those with `format` in their name that "
            "are not success rewards."
        },
    )
    mentor_reward_errors: str = field(
        default="raise",
        metadata={
            "help": "What an exception in a reward function does: `raise` (it ends the run, as in TRL) or "
            "`unscorable` (the completions that it was to score on this process count as not scored, with a warning)."
        },
    )
    mentor_routes: dict[str, Any] | str | None = field(
        default=None,
        metadata={
            "help": "JSON object that overrides what is done about a cause of collapse: `mentor`, `format_hint` or "
            '`skip`, for example \'{"duplicates": "mentor"}\'. Causes: cut_off, format, duplicates, knowledge.'
        },
    )
    mentor_answer_column: str | None = field(
        default=None,
        metadata={
            "help": "Data set column with the reference answer, for diagnosis and the leak rule. Default: `answer` or "
            "`solution`, whichever is there."
        },
    )
    mentor_topic_column: str | None = field(
        default=None,
        metadata={
            "help": "Data set column that says what a question is about, by which the proof and the report are broken "
            "down. Default: `topic` or `subject`, whichever is there."
        },
    )
    mentor_control_fraction: float = field(
        default=0.0,
        metadata={
            "help": "Share of the hints that are withheld by lot: the group is re-rolled on the plain question, so "
            "that the run shows what hints do beyond a second roll. See docs/proof.md."
        },
    )
    mentor_generic_fraction: float = field(
        default=0.0,
        metadata={
            "help": "Share of the hints in whose place, by lot, the fixed hint of the domain stands: a second control."
        },
    )
    mentor_probe_steps: int = field(
        default=0,
        metadata={
            "help": "Every so many optimizer steps, ask again a few prompts that collapsed before, without a hint and "
            "without training on the answers, to see what was learnt. 0: never."
        },
    )
    mentor_probe_prompts: int = field(
        default=8, metadata={"help": "Prompts of a probe; each is answered num_generations times."}
    )
    mentor_hint_reliance: bool = field(
        default=False,
        metadata={
            "help": "Measure how much less likely the policy finds its hinted successes without the hint: two more "
            "forward passes over the re-rolled completions."
        },
    )
    mentor_table_rows: int = field(
        default=8,
        metadata={
            "help": "Most interventions that each log gives to wandb, trackio and TensorBoard as a table, with the "
            "newest questions, attempts and hints. 0: none. See docs/trackers.md."
        },
    )
    mentor_attempt_budget: int = field(
        default=12_000, metadata={"help": "Characters of failed attempts that the mentor reads for one group."}
    )
    mentor_max_concurrency: int = field(default=8, metadata={"help": "Groups that the mentor works on at once."})
    mentor_call_timeout: float = field(default=120.0, metadata={"help": "Seconds for one call to the mentor."})
    mentor_deadline: float = field(
        default=300.0,
        metadata={
            "help": "Seconds for all hints of one generation batch, or with `ahead` for each group. Groups without a "
            "hint by then are left as they are. Must be below ddp_timeout unless `ahead`."
        },
    )
    mentor_pause_after: int = field(
        default=5,
        metadata={"help": "Failed calls in a row after which an endpoint is left alone for mentor_pause_seconds."},
    )
    mentor_pause_seconds: float = field(
        default=30.0,
        metadata={"help": "Seconds before an endpoint that is left alone is tried again; doubles, up to 16 times."},
    )
    mentor_budget: dict[str, Any] | str | None = field(
        default=None,
        metadata={
            "help": "JSON object of limits after which training goes on without hints: batch_calls, batch_tokens, "
            "batch_cost, run_calls, run_tokens, run_cost. Costs need mentor_prices; batch_* are for `inline`."
        },
    )
    mentor_prices: dict[str, Any] | str | None = field(
        default=None,
        metadata={
            "help": "JSON object of prices per million tokens in a currency of your choice: prompt, completion and, "
            "if they are cheaper, cached."
        },
    )
    mentor_cache_dir: str | None = field(
        default=None,
        metadata={
            "help": "Directory of the mentor's replies on disk, from which a run that is repeated or resumed takes "
            "them without a call. Default: mentor/cache in output_dir; `none` for no cache."
        },
    )

    def __post_init__(self) -> None:
        for name in _OBJECTS:
            setattr(self, name, json_object(name, getattr(self, name)))
        for name, kinds, advice in (
            ("mentor_strategy", StrategyKind, "; an object goes to the trainer as strategy="),
            ("mentor_backend", BackendKind, "; an object goes to the trainer as mentor="),
            ("mentor_schedule", ScheduleKind, ""),
            ("mentor_decay", Decay, ""),
            ("mentor_reward_errors", RewardErrors, ""),
            ("mentor_preset", Preset, ""),
        ):
            check_choice(name, getattr(self, name), kinds, advice)
        if self.mentor_ablation is not None:
            check_choice("mentor_ablation", self.mentor_ablation, Ablation)
        if self.mentor_start_step is not None:
            check_start(self.mentor_start_step)
        self.check_strategies()
        self._check_rescue()
        for name in _COUNTS:
            value = getattr(self, name)
            check(is_whole(value) and value > 0, name, "a positive whole number", value)
        for name in ("mentor_call_timeout", "mentor_deadline", "mentor_pause_seconds"):
            value = getattr(self, name)
            check(is_number(value) and value > 0, name, "a positive number", value)
        threshold, temperature = self.mentor_success_threshold, self.mentor_temperature
        check(is_number(threshold), "mentor_success_threshold", "a number", threshold)
        check(is_number(temperature) and temperature >= 0, "mentor_temperature", "a number of at least 0", temperature)
        for name in ("mentor_success_rewards", "mentor_format_rewards"):
            _check_names(name, getattr(self, name))
        check_routes(self.mentor_routes)  # type: ignore[arg-type]  # an object by now
        self._check_budget()
        self._check_trial()
        check_template("mentor_hint_template", self.mentor_hint_template, check_hint_template)

    def construction(self) -> Construction:
        """Which rows of a re-rolled group are trained, under which prompt."""
        shaped = self.mentor_rescue_shaping == Shaping.LUFFY
        return Construction.named(self.mentor_preset, self.mentor_rescue, self.mentor_score_on, shaped=shaped)

    def asks_mentor(self) -> bool:
        """Whether the strategy that the settings name asks a mentor."""
        writes = self.mentor_strategy == StrategyKind.CRITIQUE and self.mentor_critique == CritiqueKind.TEXT
        return writes or self.mentor_strategy == StrategyKind.MENTOR

    def method(self) -> str:
        """The strategy that the settings name, where QuestA is `prefix` and `static_hint` is HINT alone."""
        prefixes = self.mentor_strategy == StrategyKind.STATIC_HINT and self.mentor_static_hint == StaticHint.PREFIX
        return str(StaticHint.PREFIX if prefixes else self.mentor_strategy)

    def reads_answers(self) -> bool:
        """Whether the mentor or the strategy that the settings name makes use of reference answers."""
        quotes = self.mentor_strategy == StrategyKind.CRITIQUE and self.mentor_critique == CritiqueKind.SIMPLE_GT
        return quotes or self.asks_mentor()

    def max_rounds(self, default: int = 1) -> int:
        """Most re-rolls of one group in a batch; `default` is the strategy's, where the settings do not say."""
        return default if self.mentor_max_rounds is None else self.mentor_max_rounds

    def strips_echo(self) -> bool:
        """Whether quoted hints are cut out of rows that are scored on the question alone."""
        chosen = self.mentor_strip_echo
        return self.mentor_preset == Preset.ROBUST if chosen is None else chosen

    def _check_rescue(self) -> None:
        for name, kinds in (("mentor_rescue", Rescue), ("mentor_score_on", ScoreOn)):
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), kinds)
        if self.mentor_strip_echo is not None:
            check_flag("mentor_strip_echo", self.mentor_strip_echo)
        self._refuse_unread_construction()
        construction = self.construction()
        refuse_rounds(self.max_rounds(), self.mentor_strategy)
        refuse_ahead(self.mentor_schedule, self.mentor_strategy)
        refuse_rounds_ahead(self.mentor_schedule, self.max_rounds())
        if self.mentor_schedule == ScheduleKind.AHEAD and construction != PAPER:
            raise ConfigError(
                "mentor_schedule='ahead' re-rolls a lesson in the place of another question, whose failures are no "
                f"group with it, so that it trains the re-rolled rows as they are; got {construction}: use "
                "mentor_preset='paper' with `ahead`, or mentor_schedule='inline'"
            )

    def _refuse_unread_construction(self) -> None:
        """A strategy with rows of its own would train them whatever is chosen here."""
        defaults = {item.name: item.default for item in fields(MentorArguments)}
        chosen = [name for name in _CONSTRUCTION if getattr(self, name) != defaults[name]]
        if chosen and self.mentor_strategy not in _WITH_CONSTRUCTION:
            raise ConfigError(
                f"{chosen[0]} says which rows 'mentor' and 'resample' train, and strategy "
                f"{self.mentor_strategy!r} has rows of its own; leave {chosen[0]} out"
            )

    def _check_budget(self) -> None:
        budget: Any = self.mentor_budget
        prices: Any = self.mentor_prices
        if self.mentor_schedule == ScheduleKind.AHEAD:
            refuse_batch_limits(budget, "mentor_budget")
        read_limits(budget, read_prices(prices, "mentor_prices"), name="mentor_budget", prices_name="mentor_prices")
        check_text("mentor_cache_dir", self.mentor_cache_dir, "a directory or `none`")

    def _check_trial(self) -> None:
        for name in ("mentor_control_fraction", "mentor_generic_fraction"):
            value = getattr(self, name)
            check(is_number(value) and 0 <= value < 1, name, "a share of at least 0 and less than 1", value)
        both = self.mentor_control_fraction + self.mentor_generic_fraction
        if both >= 1:
            raise ConfigError(
                f"mentor_control_fraction and mentor_generic_fraction add up to {both:g}, which leaves no group for "
                "the mentor's hints; keep the sum below 1"
            )
        if self.mentor_generic_fraction and self._hints_otherwise():
            raise ConfigError(
                f"mentor_generic_fraction is {self.mentor_generic_fraction:g}, but strategy {self.mentor_strategy!r} "
                "has no fixed hint to give in place of its own; leave it out, or use mentor_control_fraction, which "
                "needs none"
            )
        for name in ("mentor_probe_steps", "mentor_table_rows"):
            value = getattr(self, name)
            check(is_whole(value) and value >= 0, name, "a whole number of at least 0", value)
        check_flag("mentor_hint_reliance", self.mentor_hint_reliance)

    def _hints_otherwise(self) -> bool:
        """Whether the strategy re-rolls groups under hints and has no method `generic`."""
        return self.method() in (StrategyKind.STATIC_HINT, StrategyKind.SCAFFOLD, StrategyKind.CRITIQUE)


def _check_names(name: str, value: Any) -> None:
    names = value is None or (isinstance(value, list) and all(isinstance(item, str) for item in value))
    check(names, name, "a list of names of reward functions", value)


def refuse_ahead(schedule: str, strategy: str) -> None:
    """Raise `ConfigError` for background lessons with a strategy of this package that has none that could wait."""
    if schedule == ScheduleKind.AHEAD and strategy in set(StrategyKind) - set(_WITH_AHEAD):
        raise ConfigError(
            f"mentor_schedule='ahead' trains a re-rolled group in the place of another question's, where strategy "
            f"{strategy!r} puts new rows among those of its own; use mentor_schedule='inline', or one of "
            f"{[kind.value for kind in _WITH_AHEAD]}"
        )


def refuse_rounds(rounds: int, strategy: str) -> None:
    """Raise `ConfigError` for several re-rolls of a group with a strategy of this package that has only one."""
    if rounds > 1 and strategy in set(StrategyKind) - set(_WITH_ROUNDS):
        raise ConfigError(
            f"mentor_max_rounds={rounds} asks for another re-roll of a group that fails again, which strategy "
            f"{strategy!r} has not; leave it out, or use one of {[kind.value for kind in _WITH_ROUNDS]}"
        )


def refuse_rounds_ahead(schedule: str, rounds: int) -> None:
    """Raise `ConfigError` for several re-rolls of a group with lessons from the background."""
    if schedule == ScheduleKind.AHEAD and rounds > 1:
        raise ConfigError(
            f"mentor_schedule='ahead' re-rolls a lesson once, in a later batch, so that mentor_max_rounds={rounds} "
            "cannot be kept to; set it to 1, or use mentor_schedule='inline'"
        )

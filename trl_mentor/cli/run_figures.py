"""What a finished or running training says about its own times, for `trl-mentor plan --from-run`.

From the journal: calls, tokens and seconds of the mentor. From the newest `trainer_state.json`: step times, waits,
re-rolls, collapse. Everything is a dict of `PlanInputs` fields; what a run does not tell is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import StatisticsError, fmean, linear_regression, median, pstdev
from typing import Any

from trl_mentor.errors import ConfigError
from trl_mentor.journal import read_journal
from trl_mentor.plan_records import PlanInputs
from trl_mentor.planning import first_roll_seconds
from trl_mentor.records import Cause, Guidance, HintOrigin, Intervention
from trl_mentor.settings import ScheduleKind

_REROLL = ("mentor/reroll_completions", "mentor/reroll_seconds")


def read_run(run: Path, *, ranks: int | None = None, policy_tokens_per_second: float | None = None) -> dict[str, Any]:
    """Fields of `PlanInputs` as this run had them; `ranks` and the policy's rate may be given if it does not tell.

    Raises `FileNotFoundError` without a journal and `ConfigError` without a checkpoint that can be read or with one
    that lacks what the trainer of this package writes.
    """
    records = read_journal(run)
    state_file, state = newest_state(run)
    try:
        return _figures(records, state_file, state, ranks, policy_tokens_per_second)
    except (AttributeError, LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{state_file} is not what a MentorGRPOTrainer of this version writes ({type(error).__name__}: {error}); "
            "give every figure as a flag"
        ) from error


def _figures(
    records: Sequence[Intervention], state_file: Path, state: dict[str, Any], ranks: int | None, rate: float | None
) -> dict[str, Any]:
    totals = _totals(state, state_file)
    ranks = _ranks(state_file.parent) if ranks is None else ranks
    found = _mentor_figures([item.guidance for item in records if item.guidance is not None and item.guidance.calls])
    batches = max(totals.get("batches", 0), 1)
    found |= {
        "ranks": ranks,
        "groups": round(totals["groups"] / batches),
        "num_generations": _group_size(records),
        "collapse_share": max(totals["collapsed"] - _skipped(records), 0) / max(totals["groups"], 1),
        "schedule": ScheduleKind.AHEAD if totals.get("handed_over") else ScheduleKind.INLINE,
    }
    log = [entry for entry in state.get("log_history", []) if "step_time" in entry and _REROLL[1] in entry]
    lengths = [entry["completions/mean_length"] for entry in log if "completions/mean_length" in entry]
    if lengths and found["num_generations"]:
        found["completion_tokens"] = fmean(lengths)
        steps_per_batch = max(state.get("global_step", batches) / batches, 1.0)
        found |= _policy_figures(log[1:] or log, found, steps_per_batch, rate)
    return {name: value for name, value in found.items() if value is not None}


def _skipped(records: Sequence[Intervention]) -> int:
    """Collapsed groups that cost neither calls nor a re-roll, because of their cause."""
    return sum(
        item.guidance is not None
        and item.guidance.origin is HintOrigin.NOT_ASKED
        and item.group.cause is not Cause.KNOWLEDGE
        and any(attempt.reward is not None for attempt in item.group.attempts)
        for item in records
    )


def newest_state(run: Path) -> tuple[Path, dict[str, Any]]:
    """The `trainer_state.json` with the most steps, and what it holds: of a checkpoint, or as `save_state` left it.

    A kill can leave a torn one behind, which is passed over.
    """
    files = [*run.glob("checkpoint-*/trainer_state.json"), *run.glob("trainer_state.json")]
    states = [(file, state) for file in files if (state := _read_state(file)) is not None]
    if not states:
        torn = ", ".join(f"{file.relative_to(run)} is torn" for file in sorted(files))
        raise ConfigError(
            f"no trainer_state.json in {run} or its checkpoints{torn and f' can be read ({torn})'}: train with "
            "save_strategy other than 'no' up to a checkpoint, or give every figure as a flag"
        )
    return max(states, key=lambda found: int(found[1]["global_step"]))


def _read_state(file: Path) -> dict[str, Any] | None:
    try:
        state = json.loads(file.read_bytes())
    except ValueError:
        return None
    return state if isinstance(state, dict) and isinstance(state.get("global_step"), int) else None


def _totals(state: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    entry = state.get("stateful_callbacks", {}).get("MentorCallback")
    entry = entry[-1] if isinstance(entry, list) else entry
    totals = (entry or {}).get("attributes", {}).get("totals")
    if not totals or not totals.get("groups"):
        raise ConfigError(f"{file} has no totals of a MentorGRPOTrainer; give every figure as a flag")
    return dict(totals)


def _ranks(folder: Path) -> int:
    """Processes of the run: each one leaves the state of its random numbers in a checkpoint."""
    return max(sum(bool(re.fullmatch(r"rng_state_\d+\.pth", file.name)) for file in folder.iterdir()), 1)


def _group_size(records: Sequence[Intervention]) -> int | None:
    return max((max(len(item.completions), len(item.group.attempts)) for item in records), default=None)


def _mentor_figures(guidances: Sequence[Guidance]) -> dict[str, Any]:
    calls = [call for guidance in guidances for call in guidance.calls]
    if not calls:
        return {}
    seconds = [sum(call.seconds for call in guidance.calls) for guidance in guidances]
    mean = fmean(seconds)
    return {
        "calls_per_group": len(calls) / len(guidances),
        "call_seconds": fmean(call.seconds for call in calls),
        "prompt_tokens_per_call": fmean(call.usage.prompt_tokens for call in calls),
        "completion_tokens_per_call": fmean(call.usage.completion_tokens for call in calls),
        "group_spread": pstdev(seconds) / mean if mean else 0.0,
    }


def _policy_figures(
    log: Sequence[Mapping[str, float]], found: Mapping[str, Any], steps_per_batch: float, rate: float | None
) -> dict[str, float]:
    """Rates of the policy from its re-rolls; training is what is left of a step without mentor, re-roll and roll."""
    plain = median(
        entry["step_time"] * steps_per_batch - entry["mentor/seconds"] - entry["mentor/reroll_seconds"]
        for entry in log
    )
    fixed = 0.0
    if rate is None:
        fixed, per_row = _reroll_line([(entry[_REROLL[0]] / found["ranks"], entry[_REROLL[1]]) for entry in log])
        if per_row <= 0:
            return {}
        rate = found["completion_tokens"] / per_row
    shape = {name: found[name] for name in ("ranks", "groups", "num_generations", "completion_tokens")}
    first = first_roll_seconds(
        PlanInputs(
            **shape, policy_tokens_per_second=rate, roll_seconds=fixed, training_seconds=0.0, collapse_share=0.0
        )
    )
    scale = min(1.0, max(plain, 0.0) / first)  # a roll takes no longer than the step that it is part of
    if scale == 0:
        return {}
    return {
        "policy_tokens_per_second": rate / scale,
        "roll_seconds": fixed * scale,
        "training_seconds": max(plain - first * scale, 0.0),
    }


def _reroll_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fixed seconds and seconds per row of a re-roll: the line through what was measured, or else through 0."""
    rolls = [(rows, seconds) for rows, seconds in points if rows > 0]
    if not rolls:
        return 0.0, 0.0
    try:
        slope, intercept = linear_regression(*zip(*rolls, strict=True))
    except StatisticsError:  # too few points, or all re-rolls of one size
        slope, intercept = 0.0, 0.0
    if slope > 0 and intercept > 0:
        return intercept, slope
    return 0.0, sum(seconds for _, seconds in rolls) / sum(rows for rows, _ in rolls)

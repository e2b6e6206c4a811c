"""What a step and 1,000 collapsed groups will cost, from the one intervention that was measured."""

from __future__ import annotations

import math

from trl_mentor.budget_limits import read_prices
from trl_mentor.cli.check_findings import Finding, Setup, ok, skipped, warn
from trl_mentor.records import Guidance
from trl_mentor.setting_checks import json_object
from trl_mentor.settings import ScheduleKind

ASSUMED_SHARE = 0.3
"""Share of collapsed groups where nothing better is known: a hard data set."""


def check_estimate(setup: Setup, guidance: Guidance | None, *, measured_share: float | None) -> Finding:
    """Seconds of waiting per step and money per 1,000 collapsed groups, with the assumptions said."""
    if guidance is None or not guidance.calls:
        return skipped("estimate", "no intervention was measured")
    if setup.training.batch_problems:
        return skipped("estimate", "the batches hold no whole groups")
    share, source = _share(setup, measured_share)
    training = setup.training
    groups = training.generation_batch_size // training.num_generations
    collapsed = groups * share
    waves = math.ceil(collapsed / training.mentor_max_concurrency)
    seconds = waves * guidance.seconds
    ahead = training.mentor_schedule == ScheduleKind.AHEAD
    figures = {
        "collapse_share": share,
        "collapsed_groups_per_step": collapsed,
        "mentor_seconds_per_step": 0.0 if ahead else seconds,
    }
    found = (
        f"{source}: {collapsed:.1f} of {groups} groups in a step, {training.mentor_max_concurrency} at once, "
        f"{guidance.seconds:.1f} s each as measured alone"
    )
    found += ", nothing waits (ahead)" if ahead else f": {seconds:.0f} s of waiting a step"
    tokens = sum(call.usage.prompt_tokens + call.usage.completion_tokens for call in guidance.calls)
    figures["tokens_per_group"] = tokens
    money = cost(setup, guidance)
    if money is None:
        found += f"; 1,000 collapsed groups take {tokens / 1e3:.2f} million tokens (no mentor_prices, so no money)"
    else:
        figures["cost_per_1000_groups"] = 1000 * money
        found += f"; 1,000 collapsed groups cost {1000 * money:.2f} at mentor_prices"
    return _judged(setup, found, seconds, figures, money, collapsed)


def cost(setup: Setup, guidance: Guidance) -> float | None:
    """Price of one intervention; None without prices."""
    prices = read_prices(json_object("mentor_prices", setup.settings.mentor_prices))
    return None if prices is None else sum(prices.cost(call.usage) for call in guidance.calls)


def _share(setup: Setup, measured: float | None) -> tuple[float, str]:
    if measured is not None:
        return measured, f"as the policy showed, {measured:.0%} of groups go to the mentor"
    if setup.options.collapse_share is not None:
        return setup.options.collapse_share, f"with --collapse-share {setup.options.collapse_share:g}"
    return ASSUMED_SHARE, f"assuming that {ASSUMED_SHARE:.0%} of groups collapse (--collapse-share, or --policy-url)"


def _judged(
    setup: Setup, found: str, seconds: float, figures: dict[str, float], money: float | None, collapsed: float
) -> Finding:
    training = setup.training
    if seconds > training.mentor_deadline and training.mentor_schedule == ScheduleKind.INLINE:
        fix = (
            f"raise mentor_max_concurrency ({training.mentor_max_concurrency}) if the server has room, or "
            f"mentor_deadline ({training.mentor_deadline:g}), or use mentor_schedule: ahead; see `trl-mentor plan`"
        )
        return warn("estimate", f"{found}, more than mentor_deadline: groups go without hints", fix, **figures)
    limit = (training.mentor_budget or {}).get("batch_cost")
    if money is not None and limit is not None and money * collapsed > limit:
        fix = f"raise batch_cost above {money * collapsed:.2g}, or expect groups without hints"
        return warn("estimate", f"{found}, more than batch_cost {limit:g} allows", fix, **figures)
    return ok("estimate", found, **figures)

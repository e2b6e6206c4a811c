"""Checks that need arithmetic alone: batches and groups, times and budgets, options that exclude each other."""

from __future__ import annotations

import math
from importlib.util import find_spec

from trl_mentor.cli.check_findings import Finding, Setup, captured_warnings, fail, ok, skipped, warn
from trl_mentor.empty_steps import refuse_skipping
from trl_mentor.guards import check_arguments, warn_if_queue_is_small
from trl_mentor.records import calls_for_a_hint
from trl_mentor.settings import BackendKind, ScheduleKind


def check_batches(setup: Setup) -> Finding:
    """Does a generation batch hold whole groups, and how do they lie on the ranks."""
    training, ranks = setup.training, setup.world_size
    size = training.num_generations
    if training.batch_problems:
        return fail("batches", "; ".join(training.batch_problems), _batch_fix(setup))
    rows = training.generation_batch_size // ranks
    groups = training.generation_batch_size // size
    per_rank = f"{rows / size:g} groups on each of {ranks} ranks" if ranks > 1 else "on one rank"
    found = f"{groups} groups of {size} in a generation batch, {per_rank}"
    if rows % size:
        found += ": groups straddle ranks, which is allowed (rewards are gathered before groups are judged)"
    if setup.training.mentor_schedule == ScheduleKind.AHEAD:
        with captured_warnings("trl_mentor.guards") as texts:
            warn_if_queue_is_small(training.mentor_queue_size, groups=groups)
        if texts:
            return warn("batches", f"{found}; {texts[0]}", f"set mentor_queue_size to {groups} or more", groups=groups)
    return ok("batches", found, groups=groups, num_generations=size, groups_per_rank=rows / size)


def _batch_fix(setup: Setup) -> str:
    training, size, ranks = setup.training, setup.training.num_generations, setup.world_size
    if "1 or more" in training.batch_problems[0]:
        return "set it to a positive whole number"
    steps = training.steps_per_generation or training.gradient_accumulation_steps or 1
    step = size // math.gcd(size, ranks * steps)
    device = training.per_device_train_batch_size
    nearest = max(-(-device // step) * step, step)
    return (
        f"make per_device_train_batch_size ({device}) x processes ({ranks}) x steps_per_generation ({steps}) a "
        f"multiple of num_generations ({size}), for example with per_device_train_batch_size: {nearest}"
    )


def check_times(setup: Setup) -> Finding:
    """Do the mentor's times fit into each other and below the time after which waiting ranks give up."""
    training = setup.training
    deadline, call, ddp = training.mentor_deadline, training.mentor_call_timeout, training.ddp_timeout
    if training.settings_problems:
        return skipped("deadlines", "the settings are not valid")
    if training.deadline_problems:
        limit = f"{0.9 * ddp:g}"
        fix = f"set mentor_deadline to at most {limit}, or raise ddp_timeout above {deadline / 0.9:.0f}"
        return fail("deadlines", "; ".join(training.deadline_problems), fix)
    if call > deadline:
        fix = f"set mentor_call_timeout to at most {deadline:g}, or raise mentor_deadline"
        return warn("deadlines", f"one call may take {call:g} s, but all of a batch only {deadline:g} s", fix)
    against = f"below ddp_timeout {ddp:g} s" if training.mentor_schedule == ScheduleKind.INLINE else "for each group"
    pause = f"after {training.mentor_pause_after} failed calls an endpoint rests {training.mentor_pause_seconds:g} s"
    return ok("deadlines", f"mentor_deadline {deadline:g} s {against}, {call:g} s for a call; {pause}")


def check_budget(setup: Setup) -> Finding:
    """Is a budget large enough for at least one hint."""
    budget = setup.training.mentor_budget
    if setup.training.settings_problems:
        return skipped("budget", "the settings are not valid")
    if not setup.training.asks_mentor():
        return skipped("budget", f"strategy {setup.training.mentor_strategy} asks no mentor")
    if not budget:
        return ok("budget", "none: every collapsed group may ask the mentor")
    shown = ", ".join(f"{name} {value:g}" for name, value in sorted(budget.items()))
    for kind in ("calls", "tokens", "cost"):
        batch, run = budget.get(f"batch_{kind}"), budget.get(f"run_{kind}")
        if batch is not None and run is not None and batch > run:
            fix = f"lower batch_{kind} or raise run_{kind}"
            return warn("budget", f"batch_{kind} {batch:g} is more than run_{kind} {run:g}", fix)
    least = calls_for_a_hint(setup.training.mentor_ablation)
    few = [name for name in ("batch_calls", "run_calls") if budget.get(name, least) < least]
    if few:
        fix = f"set {few[0]} to at least {least}, better to {least} for each group that collapses"
        return fail("budget", f"{few[0]} is {budget[few[0]]:g}, less than the calls for one hint", fix)
    return ok("budget", shown)


def check_options(setup: Setup) -> Finding:
    """What the trainer refuses or warns about at construction."""
    if setup.training.settings_problems:
        return skipped("options", "the settings are not valid")
    given = {"args": setup.training}
    with captured_warnings("trl_mentor.guards") as texts:
        try:
            check_arguments(given, setup.settings, mentor=None, strategy=None, zero3=setup.zero3)
            if setup.training.mentor_skip_empty_steps:
                refuse_skipping(setup.training, scaled=setup.training.fp16, deepspeed=setup.zero3)
        except (ValueError, NotImplementedError) as error:
            absent = setup.training.mentor_backend == BackendKind.VLLM and find_spec("vllm") is None
            if absent and "not installed" in str(error):
                return warn("options", str(error), "install vLLM where the training runs, if this is another machine")
            return fail("options", str(error), "change the option that the message names")
    if texts:
        return warn("options", " ".join(texts), "follow the message, or expect what it says")
    asks = setup.training.asks_mentor()
    return ok("options", "nothing that the trainer refuses" + (f", {setup.training.mentor_backend}" if asks else ""))

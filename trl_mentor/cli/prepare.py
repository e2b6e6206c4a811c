"""`trl-mentor prepare`: hints, ladders of hints and demonstrations written by the mentor before a training."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console

from trl_mentor.budget import Budget
from trl_mentor.cli.prepare_columns import check_columns
from trl_mentor.cli.prepare_material import Kind, Material, make_materials
from trl_mentor.cli.prepare_progress import progress
from trl_mentor.cli.prepare_reward import NO_REWARD, make_judge
from trl_mentor.cli.prepare_rows import Item, load_items, refuse_output_in_data
from trl_mentor.cli.prepare_run import Means, Preparation
from trl_mentor.cli.prepare_settings import (
    choose_columns,
    data_choice,
    made_with,
    make_parser,
    read_given,
    reward_name,
)
from trl_mentor.cli.prepare_store import Store
from trl_mentor.endpoints import Endpoints
from trl_mentor.errors import ConfigError
from trl_mentor.factory import NO_CACHE, build_backends, load_leak_rule
from trl_mentor.reply_cache import ReplyCache
from trl_mentor.setting_checks import json_object
from trl_mentor.settings import MentorArguments


def main(argv: list[str]) -> int:
    """Run the command; the exit code says whether anything is missing. Raises `ConfigError` for wrong input."""
    flags = vars(make_parser().parse_args(argv))
    given = {**read_given(flags.pop("config", None)), **flags}
    settings = MentorArguments(**{name: value for name, value in given.items() if name.startswith("mentor_")})
    output = given["output"]
    if output.suffix != ".jsonl":
        raise ConfigError(f"the output is {output}; give the name of a file that ends in .jsonl")
    columns = choose_columns(given.get("columns"), settings)
    choice = data_choice(given)
    refuse_output_in_data(choice, output)
    items = load_items(choice, settings)
    reward = reward_name(given) if Kind.DEMONSTRATION in columns else NO_REWARD
    if reward == NO_REWARD and Kind.DEMONSTRATION in columns:
        unasked = "" if given.get("reward") == NO_REWARD else "; name what is to judge them with --reward"
        print(f"trl-mentor prepare: whether demonstrations are right is not checked{unasked}", file=sys.stderr)
    materials = _materials(columns, settings, items, reward)
    check_columns(materials, items, settings)
    means = _means(settings)
    made = {"columns": list(columns.values()), "reward": reward, **made_with(settings)}
    store = Store(output, items, materials, made, priced=means.budget.priced)
    interrupted = False
    with store.opened(), progress(store.bill, texts=len(items) * len(columns)) as report:
        try:
            stopped = Preparation(store, items, materials, means, report).run()
        except KeyboardInterrupt:
            interrupted, stopped = True, "interrupted: the same command goes on with what is kept"
    return _tell(store, len(items), stopped, interrupted=interrupted)


def _materials(
    columns: Mapping[Kind, str], settings: MentorArguments, items: Sequence[Item], reward: str
) -> list[Material]:
    rule = settings.mentor_leak_rule
    return make_materials(
        columns,
        settings.mentor_domain,
        settings.mentor_templates_dir,
        None if rule is None else load_leak_rule(rule),
        None if reward == NO_REWARD else make_judge(reward, items[0].row),
        settings.mentor_success_threshold,
    )


def _means(settings: MentorArguments) -> Means:
    if settings.mentor_model is None:
        raise ConfigError("no mentor: set mentor_model, and mentor_base_url for an endpoint of your own")
    limits = json_object("mentor_budget", settings.mentor_budget) or {}
    cache = settings.mentor_cache_dir
    return Means(
        Endpoints(
            build_backends(settings),
            pause_after=settings.mentor_pause_after,
            pause_seconds=settings.mentor_pause_seconds,
            patience=min(settings.mentor_call_timeout, settings.mentor_deadline) / 2,
        ),
        Budget(
            {name: limit for name, limit in limits.items() if not name.startswith("batch_")},
            json_object("mentor_prices", settings.mentor_prices),
            least_calls=1,
        ),
        None if cache is None or cache.lower() == NO_CACHE else ReplyCache(cache),
        max_retry=settings.mentor_max_retry,
        max_concurrency=settings.mentor_max_concurrency,
        call_timeout=settings.mentor_call_timeout,
        deadline=settings.mentor_deadline,
    )


def _tell(store: Store, rows: int, stopped: str, *, interrupted: bool) -> int:
    Console().print(store.bill.table())
    print(f"Written: {store.output}, {store.rows_written:,} of {rows:,} rows; the bill: {store.bill_path}")
    if stopped:
        print(f"trl-mentor prepare: {stopped}", file=sys.stderr)
    if interrupted:
        return 130
    missing = len(store.missing())
    if missing and not stopped:
        print(f"trl-mentor prepare: {missing:,} texts failed; the same command tries them again", file=sys.stderr)
    return 3 if missing else 0

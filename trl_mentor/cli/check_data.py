"""Checks of the data set: can it be read, are the columns there, do prompts and answers have a usable shape."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from trl_mentor.cli.check_findings import Finding, Setup, captured_warnings, fail, ok, skipped, warn
from trl_mentor.cli.check_scoring import LoadedReward
from trl_mentor.cli.grpo import load_splits, pick_split
from trl_mentor.cli.prompts import prompt_problem
from trl_mentor.errors import ConfigError
from trl_mentor.factory import build_strategy
from trl_mentor.guards import TESTS_COLUMN, answer_columns, check_material, refuse_images
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.strategies.base import Strategy
from trl_mentor.strategies.material import Material


def read_rows(setup: Setup) -> tuple[Finding, Setup]:
    """The first rows of the training split, streamed, so that a large data set is not downloaded.

    The files of a task are fetched whole: which rows a split has follows from all of them.
    """
    script, data = copy.copy(setup.script), copy.copy(setup.data)
    script.dataset_streaming = data.streaming = True
    split = script.dataset_train_split

    def read() -> list[Mapping[str, Any]]:
        splits = load_splits(script, data, limit=setup.options.rows)
        return list(islice(iter(pick_split(splits, split)), setup.options.rows))

    rows = outcome_of(read)
    if isinstance(rows, ConfigError):
        fix = "correct task, task_files, dataset_name, datasets or dataset_train_split"
        return fail("data", str(rows), fix), setup
    if isinstance(rows, Exception):
        name = script.task or script.dataset_name or "the mixture in `datasets`"
        fix = "correct dataset_name (a name on the Hub or a directory with data files), or fetch the data first"
        return fail("data", f"{name} cannot be read: {describe(rows)}", fix), setup
    if not rows:
        return fail("data", f"the split {split!r} has no rows", "choose another dataset_train_split"), setup
    found = ok("data", f"{len(rows)} rows read of the split {split!r}, columns {', '.join(rows[0])}")
    return found, replace(setup, rows=rows)


def check_columns(setup: Setup) -> Finding:
    """Are the columns there that training, rewards and mentor ask for, with values of a usable type."""
    if not setup.rows:
        return skipped("columns", "no rows")
    columns = setup.columns
    if "prompt" not in columns:
        fix = "rename the column with the question to `prompt`, or choose another data set"
        return fail("columns", f"no column 'prompt' among {columns}", fix)
    try:
        refuse_images(columns)
    except NotImplementedError as error:
        return fail("columns", str(error), "remove the column")
    if wrong := _wrong_prompts(setup.rows):
        fix = "make every prompt a text, or a list of messages with role and content and at least one user turn"
        return fail("columns", wrong, fix)
    missing = [
        f"{reward.name} asks for {', '.join(names)}" for reward in setup.rewards if (names := _wanted(reward, columns))
    ]
    if missing:
        fix = f"add the column to the data set, or rename one of {columns}"
        return fail("columns", f"{'; '.join(missing)}, which the data set lacks", fix)
    return _answers(setup)


def _answers(setup: Setup) -> Finding:
    if setup.training.settings_problems:
        return skipped("columns", "the settings are not valid")
    others = [column for column in setup.columns if column != "prompt"]
    with captured_warnings("trl_mentor.guards") as texts:
        try:
            answer_columns(setup.settings, setup.columns)
        except ConfigError as error:
            return fail("columns", str(error), f"set mentor_answer_column to one of {others}")
        lacking = ""
        try:
            if not setup.training.asks_mentor():
                strategy = build_strategy(setup.settings, None, is_main=False)
                check_material(strategy, setup.columns)
                lacking = _without_material(strategy, setup.rows)
        except ConfigError as error:
            return fail("columns", str(error), "add the column to the data set, or set the option that is named")
    fixes = [f"set mentor_answer_column to one of {others}"] if texts else []
    if lacking:
        texts.append(lacking)
        fixes.append("fill it, as `trl-mentor prepare` does: such rows are left to GRPO")
    names = " or ".join(map(repr, setup.answer_columns))
    empty = [number for number, row in enumerate(setup.rows) if setup.answer(row) is None]
    if names and empty and setup.training.reads_answers():
        texts.append(f"{names} is empty in row(s) {empty}")
        fixes.append("fill it, or expect diagnoses without an answer and no leak rule for these rows")
    if texts:
        return warn("columns", "; ".join(texts), "; ".join(fixes))
    kind = "text" if isinstance(setup.rows[0]["prompt"], str) else "conversations"
    tested = "right is what passes the tests" if TESTS_COLUMN in setup.columns else "no answers are read"
    answers = f"answers are in {names}" if names else tested
    return ok("columns", f"prompts are {kind}, {answers}, rewards find what they ask for")


def _without_material(strategy: Strategy, rows: Sequence[Mapping[str, Any]]) -> str:
    """Which rows lack what the strategy reads, or nothing."""
    material: Material[Any] | None = getattr(strategy, "material", None)
    if material is None:
        return ""
    lacking = [number for number, row in enumerate(rows) if not material.holds(row.get(material.column))]
    return f"{material.column!r} has nothing to use in row(s) {lacking}" if lacking else ""


def _wrong_prompts(rows: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong with the first prompt that cannot be used, or nothing."""
    kinds = {isinstance(row["prompt"], str) for row in rows}
    if len(kinds) > 1:
        return "some prompts are text and some are conversations"
    for number, row in enumerate(rows):
        if problem := prompt_problem(row["prompt"]):
            return f"the prompt of row {number} {problem}"
    return ""


def _wanted(reward: LoadedReward, columns: Sequence[str]) -> list[str]:
    """Columns, as they are told to the user, that a reward function needs and nothing fills."""
    return [" or ".join(map(repr, names)) for names in reward.needs if set(names).isdisjoint(columns)]

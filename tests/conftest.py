"""The order of the files: those that take longest first, so that no process waits for another at the end."""

from __future__ import annotations

import pytest

LONGEST = (
    "test_resume",
    "test_ranks",
    "test_math_worker",
    "test_benchmarks_overhead",
    "test_humaneval",
    "test_sandbox_life",
    "test_benchmarks_soak",
    "test_benchmarks_strategies",
    "test_strategy_ranks",
    "test_notebooks",
    "test_benchmarks_measure_steps",
    "test_trackers",
    "test_cli",
    "test_sharded",
    "test_proof_ranks",
    "test_sandbox",
    "test_programs",
    "test_recipes_paper",
    "test_launch_help",
    "test_cli_eval",
    "test_demo_uplift",
    "test_check",
    "test_weighting",
    "test_prepare",
    "test_math_reward",
    "test_distributed",
)
"""Of tens of seconds each. A name that is gone does no harm, and one that is missing costs seconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the order within a file, and that of all other files."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))

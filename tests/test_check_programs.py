"""`trl-mentor check` on recipes that judge programs: a sandbox, right and wrong programs, tests that can be read."""

# ruff: noqa: F811  (tests take the fixtures of test_check.py by name)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from task_files import call_row, livecodebench_row, write_livecodebench
from test_check import endpoint, world  # noqa: F401

from trl_mentor.programs.tests import Case, ProgramTests, Style
from trl_mentor.rewards.code import code_reward
from trl_mentor.sandbox import Isolation, available
from trl_mentor.sandbox.tiers import problem_of

PAPER = Path(__file__).parents[1] / "recipes" / "paper" / "qwen3_4b_code.yaml"
TESTS = ProgramTests(Style.STDIN, (Case("1 2\n", "3\n"),)).to_json()
ABSENT = ProgramTests(Style.STORED, sha256="ab" * 32).to_json()
CODE = {"reward_funcs": ["code_reward"], "mentor_success_rewards": None, "mentor_answer_column": None}


# Reward functions that recipes of these tests name by path.


def wrapped(completions: list[Any], tests: list[str], **kwargs: Any) -> list[float | None]:
    return code_reward(completions, tests)


def blind(completions: list[Any], tests: list[str], **kwargs: Any) -> list[float]:
    return [0.0] * len(completions)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_MENTOR_CACHE", str(tmp_path / "store"))
    monkeypatch.delenv("TRL_MENTOR_ISOLATION", raising=False)


def rows(*cells: Any) -> list[dict[str, Any]]:
    prompt = [{"role": "user", "content": "Print the sum."}]
    return [{"prompt": prompt, "tests": cell} for cell in cells]


def code(**changes: Any) -> dict[str, Any]:
    return CODE | {"mentor_domain": "code"} | changes


def test_the_papers_recipe_for_code_has_a_sandbox_that_tells_right_from_wrong(world, capsys):
    lines = [(call_row if number % 2 else livecodebench_row)(number) for number in range(24)]
    files = write_livecodebench(world.folder / "lcb", lines)
    recipe = yaml.safe_load(PAPER.read_text(encoding="utf-8"))
    own = {"mentor_model": "mentor", "mentor_base_url": world.endpoint.url, "mentor_deadline": 600, "use_vllm": False}
    done = world.check(
        capsys, **recipe | own | {"dataset_name": None, "task_files": str(files)}, mentor_answer_column=None
    )
    found = done.at["sandbox"]
    assert found["level"] == "ok", found
    assert found["figures"]["isolation"] == available()
    assert "code_reward: a right program gets 1, a wrong one 0; 8 of 8 rows have tests" in found["found"]
    assert {done.at[name]["level"] for name in ("data", "columns", "templates")} == {"ok"}
    assert done.code == 0, done.at


def test_a_recipe_without_programs_needs_no_sandbox(world, capsys, monkeypatch):
    monkeypatch.setenv("TRL_MENTOR_ISOLATION", "a word")
    done = world.check(capsys)
    assert done.code == 0
    assert done.at["sandbox"]["level"] == "skipped"


def test_an_isolation_that_does_not_exist_fails_and_the_known_ones_are_named(world, capsys, monkeypatch):
    monkeypatch.setenv("TRL_MENTOR_ISOLATION", "fitler")
    world.data = rows(TESTS)
    done = world.check(capsys, **code())
    assert done.code == 1
    assert done.at["sandbox"]["level"] == "fail"
    assert "TRL_MENTOR_ISOLATION is 'fitler', expected one of bubblewrap" in done.at["sandbox"]["fix"]
    assert done.at["reward"]["level"] == "skipped"


def test_an_isolation_without_namespaces_is_a_warning_that_names_the_page(world, capsys, monkeypatch):
    weak = [tier for tier in (Isolation.FILTER, Isolation.LIMITS) if problem_of(tier) is None]
    if not weak:
        pytest.skip("programs run here in namespaces or not at all")
    monkeypatch.setenv("TRL_MENTOR_ISOLATION", weak[0])
    world.data = rows(TESTS)
    done = world.check(capsys, **code())
    assert done.code == 0
    assert done.at["sandbox"]["level"] == "warn"
    assert "a right program gets 1, a wrong one 0" in done.at["sandbox"]["found"]
    assert "docs/sandbox.md" in done.at["sandbox"]["fix"]


def test_a_reward_of_this_package_that_fails_a_right_program_is_a_failure(world, capsys, monkeypatch):
    monkeypatch.setattr("trl_mentor.rewards.code.program_of", lambda text: None)
    world.data = rows(TESTS)
    done = world.check(capsys, **code(reward_funcs=["trl_mentor.rewards.code.code_fraction_reward"]))
    assert done.code == 1
    assert "code_fraction_reward gives a right and a wrong program 0, 0, not 1, 0: " in done.at["sandbox"]["found"]
    assert "python -m trl_mentor.sandbox" in done.at["sandbox"]["fix"]


@pytest.mark.parametrize(("reward", "level"), [("wrapped", "ok"), ("blind", "warn")])
def test_a_reward_of_the_users_own_is_tried_as_well_and_may_have_its_reasons(world, capsys, reward, level):
    world.data = rows(TESTS, None)
    done = world.check(capsys, **code(reward_funcs=[f"test_check_programs.{reward}"]))
    assert done.code == 0
    assert done.at["sandbox"]["level"] == level
    assert reward in done.at["sandbox"]["found"]


def test_tests_of_another_form_are_left_to_the_users_own_reward(world, capsys):
    world.data = rows("assert solve(1) == 2")
    done = world.check(capsys, **code(reward_funcs=["test_check_programs.blind"]))
    assert done.code == 0
    assert done.at["sandbox"]["level"] == "skipped"


@pytest.mark.parametrize(
    ("cell", "found", "fix"),
    [
        ("assert solve(1) == 2", "the tests are no JSON", "docs/rewards.md"),
        (ABSENT, "are not in the test store", "load_task on every machine, or set TRL_MENTOR_CACHE"),
    ],
)
def test_tests_that_cannot_be_read_fail_and_the_row_is_named(world, capsys, cell, found, fix):
    world.data = rows(TESTS, cell)
    done = world.check(capsys, **code())
    assert done.code == 1
    assert done.at["sandbox"]["level"] == "fail"
    assert "the tests of row(s) [1] cannot be read; row 1: " in done.at["sandbox"]["found"]
    assert found in done.at["sandbox"]["found"]
    assert fix in done.at["sandbox"]["fix"]


def test_math_reward_on_programs_lacks_a_column_and_the_domain_is_doubted(world, capsys):
    world.data = rows(TESTS)
    done = world.check(capsys, **CODE | {"reward_funcs": ["math_reward"], "mentor_domain": "math"})
    assert done.code == 1
    assert done.at["columns"]["level"] == "fail"
    assert "math_reward asks for 'answer' or 'solution'" in done.at["columns"]["found"]
    assert done.at["templates"]["level"] == "warn"
    assert "set mentor_domain to code" in done.at["templates"]["fix"]


def test_the_domain_of_programs_is_doubted_where_answers_are_compared(world, capsys):
    done = world.check(capsys, reward_funcs=["math_reward"], mentor_success_rewards=None, mentor_domain="code")
    assert done.at["columns"]["level"] == "ok"
    assert done.at["templates"]["level"] == "warn"
    assert "set mentor_domain to math" in done.at["templates"]["fix"]


def test_code_reward_on_answers_lacks_its_column_and_is_tried_all_the_same(world, capsys):
    done = world.check(capsys, reward_funcs=["code_reward"], mentor_success_rewards=None, mentor_domain="code")
    assert done.code == 1
    assert "code_reward asks for 'tests'" in done.at["columns"]["found"]
    assert "a right program gets 1, a wrong one 0; 0 of 6 rows have tests" in done.at["sandbox"]["found"]
    assert done.at["sandbox"]["level"] == "warn"
    assert "correct the function" not in done.at["reward"]["fix"]

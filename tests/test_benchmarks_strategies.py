"""The comparison of strategies: its worlds and tutors, one quick comparison from end to end, its table."""

from __future__ import annotations

import json
import random
import sys
from itertools import combinations
from pathlib import Path

import pytest

from trl_mentor import Mentor, ScriptedBackend
from trl_mentor.demo.corpus import Habits, write_document
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import compare_strategies  # noqa: E402
from strategy_arithmetic import missing_rules, sample_sums, solves  # noqa: E402
from strategy_rates import TUNING_SEEDS, choose_rates, tuning_specs  # noqa: E402
from strategy_specs import METHODS, QUICK, Spec, read_result, result_path  # noqa: E402
from strategy_students import Start, recipe_digest  # noqa: E402
from strategy_tables import markdown, rows  # noqa: E402
from strategy_tutors import QualityTutor, Tutoring  # noqa: E402
from strategy_worlds import ARITHMETIC, CODE, WORLDS, without_quote  # noqa: E402


@pytest.fixture(scope="module")
def sums():
    return sample_sums(random.Random(3), 6, held_out=False)


def test_every_missing_rule_fails_a_sum_and_is_found_from_the_steps(sums):
    for problem in sums.values():
        assert solves(problem.answer, problem)
        for size in range(len(problem.concepts)):
            for known in combinations(problem.concepts, size):
                steps = problem.program(known=known)
                assert not solves(steps, problem), problem
                found = missing_rules(steps, problem)
                assert {rule for rule in problem.concepts if rule not in known} <= set(found)
                # Where a wrong order hides another rule, that one is named as well.
                assert problem.program(known=[rule for rule in problem.concepts if rule not in found]) == steps


def test_answers_are_read_as_the_student_writes_them_digit_by_digit(sums):
    problem = next(p for p in sums.values() if p.family == "negative")
    assert solves(" ".join(problem.answer.replace(" ", "")), problem)
    assert not solves("", problem)
    assert not solves("= 9 9 9 9 9 9 9 9 9", problem)


def test_the_sides_of_the_split_share_no_sum(sums):
    assert sums.keys().isdisjoint(sample_sums(random.Random(3), 6, held_out=True))


def test_a_student_that_quotes_begins_its_hinted_answers_with_the_hint(sums):
    rng = random.Random(0)
    world = WORLDS["echo"]
    problem = next(p for p in world.problems(2, seed=0, held_out=False).values() if p.concepts)
    quoted = 0
    for _ in range(200):
        prompt, answer = write_document(rng, problem, ["x", "n"], habits=world.habits)
        hint = prompt.partition("Hint: ")[2].partition("\n")[0].strip()
        quoted += bool(hint) and answer.startswith(f"{hint} ")
        assert without_quote(answer) in (problem.answer, problem.naive)
        assert world.correct(answer, problem) == (without_quote(answer) == problem.answer)
    assert 60 < quoted < 120
    assert write_document(random.Random(1), problem, ["x"]) == write_document(
        random.Random(1), problem, ["x"], habits=Habits()
    )


def test_worlds_that_pretrain_alike_share_a_recipe_and_others_do_not():
    digests = {name: recipe_digest(world, 100) for name, world in WORLDS.items()}
    assert len(set(digests.values())) == len(WORLDS)
    assert recipe_digest(WORLDS["code"], 200) != digests["code"]


def test_a_student_that_is_not_what_its_world_claims_is_named():
    start = Start(unhinted=1e-3, plain=0.11, hinted=0.6, quoted=0.0, collapsed=0.9)
    assert start.breaches(WORLDS["code"]) == []
    assert start.breaches(WORLDS["echo"]) == ["echo: quoted is 0, the world claims 0.9 to 1"]
    assert start.breaches(WORLDS["strong"]) == ["strong: hinted is 0.6, the world claims 0.8 to 1"]


def hints_of(domain, tutoring):
    """Problems that need a concept, and the guidance for a group of naive answers to each, by the real mentor."""
    problems = domain.sample(random.Random(1), 4, held_out=False)
    asked = [problem for problem in problems.values() if problem.concepts]
    tutor = QualityTutor(domain, problems, tutoring)
    mentor = Mentor(ScriptedBackend(tutor), domain=domain.templates, fallback_hint=domain.generic_hints[0])
    groups = [
        CollapsedGroup(p.question, (Attempt(p.naive, 0.0),) * 4, answer=p.answer, prompt=p.question) for p in asked
    ]
    return list(zip(asked, mentor.guide(groups), strict=True))


@pytest.mark.parametrize("domain", [CODE, ARITHMETIC], ids=lambda domain: domain.name)
def test_a_hint_fits_as_often_as_the_quality_of_the_tutor_says(domain):
    def fitting(tutoring):
        pairs = hints_of(domain, tutoring)
        return [
            {c.name for c in domain.concepts if any(hint in guidance.hint for hint in c.hints)}
            & {c.name for c in problem.concepts}
            == {c.name for c in problem.concepts}
            for problem, guidance in pairs
        ]

    assert all(fitting(Tutoring.RIGHT))
    assert not any(fitting(Tutoring.GENERIC))
    assert not any(fitting(Tutoring.MISLEADING))
    assert any(shuffled := fitting(Tutoring.SHUFFLED))
    assert sum(shuffled) < len(shuffled) / 2
    for problem, guidance in hints_of(domain, Tutoring.GENERIC):
        assert guidance.hint in domain.generic_hints, problem


@pytest.mark.parametrize("domain", [CODE, ARITHMETIC], ids=lambda domain: domain.name)
def test_a_hint_that_is_the_answer_is_refused_by_the_mentor(domain):
    for problem, guidance in hints_of(domain, Tutoring.LEAKING):
        assert guidance.origin is HintOrigin.FALLBACK, problem
        assert guidance.hint == domain.generic_hints[0]


def quick(folder, *patterns):
    arguments = ["--output", str(folder), "--quick", "--processes", "1", "--only", *patterns]
    return compare_strategies.main(arguments)


def test_a_quick_comparison_spends_equal_tokens_and_does_no_finished_run_again(tmp_path, capsys):
    methods = ("none", "resample", "mentor", "mentor-robust")
    readme = BENCHMARKS / "README.md"
    before = readme.read_text() if readme.exists() else None
    assert quick(tmp_path, *(f"arithmetic.{method}" for method in methods)) == 0
    specs = {name: Spec("arithmetic", name, 0, 0, compare_strategies.LEARNING_RATES[0], QUICK) for name in methods}
    results = {name: read_result(tmp_path, spec) for name, spec in specs.items()}
    one_roll = 64 * WORLDS["arithmetic"].max_tokens
    for result in results.values():
        assert QUICK.tokens <= result["tokens"] < QUICK.tokens + 2 * one_roll
        assert [point["tokens"] for point in result["curve"]] == [0, result["tokens"]]
        assert result["tokens"] == result["totals"]["policy_tokens"]
    assert results["none"]["totals"]["reroll_tokens"] == 0
    assert results["resample"]["totals"]["reroll_tokens"] > 0
    assert results["none"]["mentor_tokens"] == results["resample"]["mentor_tokens"] == 0
    assert results["mentor"]["mentor_tokens"] > 0
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "| arithmetic | mentor | 1 (1 runs, no band) |" in (tmp_path / "table.md").read_text()
    assert (readme.read_text() if readme.exists() else None) == before

    whole, torn, gone, _ = (result_path(tmp_path, specs[name]) for name in methods)
    kept = whole.stat().st_mtime_ns
    torn.write_text(torn.read_text()[:200])
    gone.unlink()
    capsys.readouterr()
    assert quick(tmp_path, *(f"arithmetic.{method}" for method in methods)) == 0
    assert "runs: 2 of 4 are there" in capsys.readouterr().out
    assert whole.stat().st_mtime_ns == kept
    assert read_result(tmp_path, specs["resample"])["curve"] == results["resample"]["curve"]
    assert read_result(tmp_path, specs["mentor"])["curve"] == results["mentor"]["curve"]


def test_the_result_of_other_settings_is_not_taken_for_this_run(tmp_path):
    spec = Spec("code", "none", 0, 0, 1e-3, QUICK)
    result_path(tmp_path, spec).write_text(json.dumps({"spec": {**spec.identity(), "learning_rate": 1e-4}}))
    assert read_result(tmp_path, spec) is None


def test_patterns_choose_runs_and_one_that_fits_nothing_is_an_error(tmp_path, capsys):
    pairs = compare_strategies.chosen(["deep.mentor*"])
    assert pairs == [("deep", name) for name in METHODS if name.startswith("mentor")]
    assert len(compare_strategies.chosen([])) == len(WORLDS) * len(METHODS)
    tuning = tuning_specs(pairs, [1e-3, 5e-4], QUICK)
    assert len({spec.name for spec in tuning}) == len(pairs) * 2 * len(TUNING_SEEDS)
    assert quick(tmp_path, "nowhere.*") == 2
    assert "worlds: code, arithmetic" in capsys.readouterr().err


def result(method, *, student, seed, end, tokens=100, rate=1e-3):
    return {
        "spec": {
            "world": "code",
            "method": method,
            "pretraining_seed": student,
            "seed": seed,
            "learning_rate": rate,
            "size": {"tokens": tokens},
        },
        "curve": [{"tokens": 0, "accuracy": 0.0}, {"tokens": 200, "accuracy": end}],
        "mentor_tokens": 10 * (method == "mentor"),
    }


def test_accuracy_is_that_at_the_budget_and_intervals_are_over_seeds():
    runs = [result("none", student=0, seed=seed, end=0.2) for seed in range(3)]
    runs += [result("mentor", student=0, seed=seed, end=end) for seed, end in enumerate((0.8, 0.9, 1.0))]
    none, mentor = rows(runs)
    assert (none.final.mean, mentor.final.mean) == pytest.approx((0.1, 0.45))
    # t(.975, 2) = 4.3027; standard error .05 / sqrt(3)
    assert mentor.final.high - mentor.final.mean == pytest.approx(4.3027 * 0.05 / 3**0.5, rel=1e-4)
    assert mentor.height.mean == pytest.approx(0.225)
    assert mentor.gain.difference == pytest.approx(0.35)
    assert "| code | mentor | 3 (3 runs, 95% t-interval) | 0.450 [0.326, 0.574] |" in markdown([none, mentor])


def test_with_three_students_the_interval_is_over_students():
    runs = [result("mentor", student=s, seed=r, end=0.2 * s + 0.1 * r) for s in range(3) for r in range(4)]
    (row,) = rows(runs)
    # Means of the students: .075, .175, .275.
    assert row.over == "3 students, 95% t-interval"
    assert row.final.high - row.final.mean == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-4)


def test_runs_of_different_budgets_are_not_compared():
    with pytest.raises(ValueError, match=r"budgets of \[100, 150\] tokens"):
        rows([result("none", student=0, seed=0, end=1), result("none", student=0, seed=1, end=1, tokens=150)])


def test_each_method_gets_the_rate_that_was_best_for_it_and_on_a_tie_the_lower():
    runs = [result("none", student=0, seed=seed, end=0.2, rate=rate) for seed in (0, 1) for rate in (1e-3, 5e-4)]
    ends = {(0, 1e-3): 0.9, (1, 1e-3): 0.9, (0, 5e-4): 1.0, (1, 5e-4): 0.1}
    runs += [result("mentor", student=0, seed=seed, end=end, rate=rate) for (seed, rate), end in ends.items()]
    assert choose_rates(runs) == {"none": 5e-4, "mentor": 1e-3}


def test_published_tables_replace_those_between_the_marks_alone(tmp_path):
    readme, picture = tmp_path / "README.md", tmp_path / "results" / "strategies.png"
    picture.parent.mkdir()
    compare_strategies.publish("| first |\n", b"1", folder=tmp_path)
    readme.write_text("before\n" + readme.read_text() + "after\n")
    compare_strategies.publish("| second |\n", b"2", folder=tmp_path)
    text = readme.read_text()
    assert text.startswith("before\n# Benchmarks")
    assert text.endswith("after\n")
    assert ("| second |" in text, "| first |" in text, text.count("Synthetic worlds")) == (True, False, 1)
    assert picture.read_bytes() == b"2"

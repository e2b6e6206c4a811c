"""The comparison of strategies: its worlds and tutors, one quick comparison from end to end, its table."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import sys
from itertools import combinations
from pathlib import Path

import pytest

from trl_mentor import Mentor, MentorGRPOConfig, ScriptedBackend
from trl_mentor.demo.corpus import Habits, write_document
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import compare_strategies  # noqa: E402
import strategy_specs  # noqa: E402
from strategy_arithmetic import missing_rules, sample_sums, solves  # noqa: E402
from strategy_hints import hinting, measure_hints  # noqa: E402
from strategy_methods import MAIN, METHODS  # noqa: E402
from strategy_noise import Noise, NoisyTutor  # noqa: E402
from strategy_pages import publish, tables  # noqa: E402
from strategy_rates import DEFAULT_RATE, TUNING_SEEDS, choose_rates, rate_for, tuning_specs  # noqa: E402
from strategy_specs import FULL, QUICK, REDUCED, Spec, read_result, result_path  # noqa: E402
from strategy_students import Start, recipe_digest  # noqa: E402
from strategy_tables import markdown, rows, verdicts  # noqa: E402
from strategy_tutors import QualityTutor, Tutoring, fits  # noqa: E402
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
    return guided(domain, problems, QualityTutor(domain, problems, tutoring))


def guided(domain, problems, tutor, **settings):
    asked = [problem for problem in problems.values() if problem.concepts]
    mentor = Mentor(ScriptedBackend(tutor), domain=domain.templates, fallback_hint=domain.generic_hints[0], **settings)
    groups = [
        CollapsedGroup(p.question, (Attempt(p.naive, 0.0),) * 4, answer=p.answer, prompt=p.question) for p in asked
    ]
    return list(zip(asked, mentor.guide(groups), strict=True))


@pytest.mark.parametrize("domain", [CODE, ARITHMETIC], ids=lambda domain: domain.name)
def test_a_hint_fits_as_often_as_the_quality_of_the_tutor_says(domain):
    def fitting(tutoring):
        return [fits(domain, guidance.hint, problem) for problem, guidance in hints_of(domain, tutoring)]

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


@pytest.mark.parametrize("domain", [CODE, ARITHMETIC], ids=lambda domain: domain.name)
def test_what_is_written_before_the_run_is_as_good_as_the_tutor(domain):
    problems = domain.sample(random.Random(1), 4, held_out=False)
    right, misled = (QualityTutor(domain, problems, kind) for kind in (Tutoring.RIGHT, Tutoring.MISLEADING))
    leaking = QualityTutor(domain, problems, Tutoring.LEAKING)
    for question, problem in problems.items():
        assert leaking.static_hint(question) == problem.answer
        assert fits(domain, right.static_hint(question), problem)
        ladder = right.ladder(question)
        assert ladder[0] in domain.generic_hints
        assert [fits(domain, hint, problem) for hint in ladder[1:]] == [False] * max(len(ladder) - 2, 0) + [True] * (
            len(ladder) > 1
        )
        assert len(ladder) == 1 + len(problem.concepts)
        if problem.concepts:
            assert not fits(domain, misled.static_hint(question), problem)


def test_each_agent_of_a_tutor_that_errs_has_work_to_do():
    problems = CODE.sample(random.Random(1), 12, held_out=False)

    def share(*noise, **settings):
        pairs = guided(CODE, problems, NoisyTutor(CODE, problems, noise=Noise(*noise)), **settings)
        return sum(fits(CODE, guidance.hint, problem) for problem, guidance in pairs) / len(pairs)

    whole = share()
    without = [share(ablation=f"no_{part}") for part in ("attribution", "generation", "judge")]
    assert max(without) + 0.1 < whole < 0.9, (whole, without)
    assert share(max_retry=1, max_refine=1) < whole
    assert share(0, 0, 0, 0, 0, 0, 0) == 1
    assert share(0, 0, 0, 0, 0, 0, 1, max_retry=1, max_refine=1) == 0  # the judge refuses all, so fallback hints


def test_a_tutor_that_errs_does_so_the_same_way_twice_and_not_with_another_seed():
    problems = CODE.sample(random.Random(1), 4, held_out=False)

    def hints(seed):
        return [guidance.hint for _, guidance in guided(CODE, problems, NoisyTutor(CODE, problems, seed=seed))]

    assert hints(0) == hints(0) != hints(1)


def quick(folder, *patterns):
    arguments = ["--output", str(folder), "--students", str(folder / "students"), "--quick", "--processes", "1"]
    return compare_strategies.main([*arguments, "--only", *patterns])


def test_a_quick_comparison_spends_equal_tokens_and_does_no_finished_run_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(compare_strategies, "given_rates", dict)
    methods = ("none", "dapo", "resample", "luffy", "critique", "mentor-robust-noisy", "mentor")
    readme = BENCHMARKS / "README.md"
    before = readme.read_text() if readme.exists() else None
    assert quick(tmp_path, *(f"arithmetic.{method}" for method in methods)) == 0
    specs = {name: Spec("arithmetic", name, 0, 0, DEFAULT_RATE, QUICK) for name in methods}
    results = {name: read_result(tmp_path, spec) for name, spec in specs.items()}
    one_roll = 64 * WORLDS["arithmetic"].max_tokens
    rerolled = {name: result["totals"].get("reroll_tokens", 0) for name, result in results.items()}
    for name, result in results.items():
        # At most the second half of a batch goes beyond the budget, of dapo each of its rounds.
        assert QUICK.tokens <= result["tokens"] < QUICK.tokens + one_roll * (11 if name == "dapo" else 2)
        assert [point["tokens"] for point in result["curve"]] == [0, result["tokens"]]
        assert (rerolled[name] > 0) == (name not in ("none", "luffy")), name
        assert (result["mentor_tokens"] > 0) == (name.startswith("mentor") or name == "critique"), name
        assert len(result_path(tmp_path, specs[name]).read_text()) < 4000
    assert results["luffy"]["totals"]["given_rows"] > 0
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    table = (tmp_path / "table.md").read_text()
    assert "Each: 1 run, no band." in table
    assert all(f"| arithmetic | {name} | " in table for name in methods)
    assert "Hints before any training" in table
    assert (readme.read_text() if readme.exists() else None) == before

    names = ["none", "resample", "mentor"]
    whole, torn, gone = (result_path(tmp_path, specs[name]) for name in names)
    kept = whole.stat().st_mtime_ns
    torn.write_text(torn.read_text()[:200])
    gone.unlink()
    capsys.readouterr()
    assert quick(tmp_path, *(f"arithmetic.{method}" for method in names)) == 0
    assert "runs: 1 of 3 are there" in capsys.readouterr().out
    assert whole.stat().st_mtime_ns == kept
    assert read_result(tmp_path, specs["resample"])["curve"] == results["resample"]["curve"]
    assert read_result(tmp_path, specs["mentor"])["curve"] == results["mentor"]["curve"]


def test_finished_runs_need_no_student(tmp_path):
    """Another clone has the results and not the checkpoints."""
    spec = Spec("code", "none", 0, 0, DEFAULT_RATE, QUICK)
    result_path(tmp_path, spec).write_text(json.dumps({"spec": spec.identity(), "curve": []}))
    assert compare_strategies.run_once(spec, tmp_path, tmp_path / "students")["curve"] == []
    assert not (tmp_path / "students").exists()


def test_the_result_of_other_settings_or_of_another_version_is_not_taken_for_this_run(tmp_path, monkeypatch):
    spec = Spec("code", "none", 0, 0, 1e-3, QUICK)
    path, content = result_path(tmp_path, spec), {"spec": spec.identity()}
    path.write_text(json.dumps({"spec": {**spec.identity(), "learning_rate": 1e-4}}))
    assert read_result(tmp_path, spec) is None
    path.write_text(json.dumps(content))
    assert read_result(tmp_path, spec) == content
    assert str(tmp_path) not in path.read_text()
    monkeypatch.setattr(strategy_specs, "VERSION", strategy_specs.VERSION + 1)
    assert read_result(tmp_path, spec) is None


def test_patterns_choose_runs_and_one_that_fits_nothing_is_an_error(tmp_path, capsys):
    assert compare_strategies.chosen(["deep.mentor*"], FULL) == [("deep", "mentor"), ("deep", "mentor-robust")]
    everything = compare_strategies.chosen([], FULL)
    hinted = [pair for pair in everything if not compare_strategies.is_trained(*pair)]
    assert all(name in hinting(world) for world, name in hinted)
    assert ("code", "mentor-noisy-retry1") in hinted
    assert ("code", "mentor-noisy") not in hinted
    assert {name for _, name in everything} == set(METHODS)
    assert {world for world, _ in everything} == set(WORLDS)
    reduced = compare_strategies.chosen([], REDUCED)
    assert {world for world, _ in reduced} == set(MAIN)
    assert set(reduced) < set(everything)
    assert quick(tmp_path, "nowhere.*") == 2
    assert "worlds: code, arithmetic" in capsys.readouterr().err


def test_rates_are_chosen_in_the_main_worlds_and_variants_take_that_of_their_method():
    trained = [("code", "mentor"), ("deep", "mentor-leaking"), ("deep", "luffy"), ("arithmetic", "luffy")]
    tuning = tuning_specs(trained, [1e-3, 5e-4], QUICK)
    runs = {(spec.world, spec.method) for spec in tuning}
    assert runs == {("code", "mentor"), ("code", "luffy"), ("arithmetic", "luffy")}
    assert len({spec.name for spec in tuning}) == len(tuning) == 3 * 2 * len(TUNING_SEEDS)
    assert {spec.size.tokens for spec in tuning_specs([("code", "none")], [1e-3], FULL)} == {FULL.tokens // 2}
    assert {spec.seed for spec in tuning}.isdisjoint(range(compare_strategies.RUNS))
    chosen = {"code": {"mentor": 2.5e-4}, "arithmetic": {"mentor": 1e-3}}
    assert [rate_for(world, "mentor-leaking", chosen) for world in ("code", "arithmetic", "deep")] == [
        2.5e-4,
        1e-3,
        2.5e-4,
    ]
    assert rate_for("code", "luffy", chosen) == DEFAULT_RATE


def test_the_main_worlds_have_all_runs_and_their_students_and_regimes_fewer():
    runs = {world: compare_strategies.runs_in(world, compare_strategies.RUNS) for world in WORLDS}
    assert runs == {"code": 6, "arithmetic": 6, "deep": 5, "strong": 5, "shallow": 5, "echo": 5}
    assert compare_strategies.runs_in("deep", 1) == 1


def test_students_are_pretrained_as_long_as_their_world_says_and_for_a_test_hardly():
    assert FULL.pretraining(WORLDS["arithmetic"]) == WORLDS["arithmetic"].pretraining_steps == 2500
    assert QUICK.pretraining(WORLDS["arithmetic"]) == 5


def test_every_setting_of_a_method_is_one_that_the_trainer_knows(tmp_path):
    for name, method in METHODS.items():
        MentorGRPOConfig(output_dir=str(tmp_path), **method.settings, use_cpu=True, bf16=False)
        assert method.rate_of is None or METHODS[method.rate_of].rate_of is None, name
        assert set(method.worlds) <= set(WORLDS), name


def test_the_quality_of_hints_is_measured_once(tmp_path):
    size = dataclasses.replace(QUICK, train_per_family=2)
    found = measure_hints("arithmetic", "mentor", size, tmp_path, tmp_path / "students")
    assert (found["groups"], found["right"], found["accepted"]) == (32, 1, 1)
    assert 3 <= found["calls"] <= 5
    shutil.rmtree(tmp_path / "students")
    assert measure_hints("arithmetic", "mentor", size, tmp_path, tmp_path / "students") == found


def result(method, *, seed, end, tokens=100, rate=1e-3, world="code"):
    return {
        "spec": {
            "world": world,
            "method": method,
            "pretraining_seed": seed,
            "seed": seed,
            "learning_rate": rate,
            "size": {"tokens": tokens},
        },
        "curve": [{"tokens": 0, "accuracy": 0.0}, {"tokens": 200, "accuracy": end}],
        "mentor_tokens": 10 * (method == "mentor"),
    }


def runs_of(method, *ends):
    return [result(method, seed=seed, end=end) for seed, end in enumerate(ends)]


def test_accuracy_is_that_at_the_budget_and_intervals_are_over_runs():
    none, mentor = rows(runs_of("none", 0.2, 0.2, 0.2) + runs_of("mentor", 0.8, 0.9, 1.0))
    assert (none.final.mean, mentor.final.mean) == pytest.approx((0.1, 0.45))
    # t(.975, 2) = 4.3027; standard error .05 / sqrt(3)
    assert mentor.final.high - mentor.final.mean == pytest.approx(4.3027 * 0.05 / 3**0.5, rel=1e-4)
    assert mentor.height.mean == pytest.approx(0.225)
    assert mentor.gain.difference == pytest.approx(0.35)
    assert (none.gain, mentor.behind) == (None, {})
    assert "| code | mentor | 0.450 [0.326, 0.574] |" in markdown([none, mentor])
    assert "Each: 3 runs, 95% t-interval." in markdown([none, mentor])


def test_what_mentor_is_ahead_by_is_taken_between_runs_of_the_same_student():
    luffy, mentor = rows(runs_of("luffy", 0.2, 0.4, 0.6) + runs_of("mentor", 0.4, 0.6, 0.8))
    ahead = luffy.behind["mentor"]
    assert (ahead.difference, ahead.low, ahead.high) == pytest.approx((0.1, 0.1, 0.1))
    assert mentor.gain is None


def test_mentor_is_ahead_of_a_rival_only_where_their_intervals_do_not_overlap():
    found = rows(
        runs_of("none", 0.2, 0.21, 0.22)
        + runs_of("luffy", 0.5, 0.9, 0.7)
        + runs_of("dapo", 0.98, 0.981, 0.982)
        + runs_of("mentor", 0.8, 0.81, 0.82)
    )
    said = "".join(
        f"* code, `mentor`, {measure}: ahead of `none`; behind `dapo`; intervals overlap with `luffy`.\n"
        for measure in ("at the end", "mean over the curve")
    )
    assert verdicts(found, ["none", "luffy", "dapo", "mentor"]) == said
    assert verdicts(found, ["none", "mentor"]).count("behind nobody") == 2


def test_a_comparison_without_mentor_still_has_tables():
    text = tables(runs_of("none", 0.2) + runs_of("mentor-noisy", 0.3), [], [], {"code": {"none": 1e-3}})
    assert "Learning rates in code: none 0.001." in text
    assert text.index("| code | none | ") < text.index("### The loop") < text.index("| code | mentor-noisy | ")


def test_runs_of_different_budgets_are_not_compared():
    with pytest.raises(ValueError, match=r"budgets of \[100, 150\] tokens"):
        rows([result("none", seed=0, end=1), result("none", seed=1, end=1, tokens=150)])


def test_each_method_gets_the_rate_that_was_best_for_it_and_on_a_tie_the_lower():
    runs = [result("none", seed=seed, end=0.2, rate=rate) for seed in (0, 1) for rate in (1e-3, 5e-4)]
    ends = {(0, 1e-3): 0.9, (1, 1e-3): 0.9, (0, 5e-4): 1.0, (1, 5e-4): 0.1}
    runs += [result("mentor", seed=seed, end=end, rate=rate) for (seed, rate), end in ends.items()]
    runs += [result("none", seed=0, end=end, rate=rate, world="deep") for rate, end in ((1e-3, 0.3), (5e-4, 0.2))]
    assert choose_rates(runs) == {"code": {"none": 5e-4, "mentor": 1e-3}, "deep": {"none": 1e-3}}


def test_published_tables_replace_those_between_the_marks_alone(tmp_path):
    readme, picture = tmp_path / "README.md", tmp_path / "results" / "strategies.png"
    picture.parent.mkdir()
    publish("| first |\n", b"1", folder=tmp_path)
    readme.write_text("before\n" + readme.read_text() + "after\n")
    publish("| second |\n", b"2", folder=tmp_path)
    text = readme.read_text()
    assert text.startswith("before\n# Benchmarks")
    assert text.endswith("after\n")
    assert ("| second |" in text, "| first |" in text) == (True, False)
    assert picture.read_bytes() == b"2"

"""The figures of an evaluation and how sure they are."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from scipy.stats import bootstrap

from trl_mentor.evaluation.estimators import (
    macro_average,
    maj_at_k,
    pass_at_k,
    relative_gain,
    share,
    weighted_average,
)
from trl_mentor.evaluation.intervals import estimate, gain
from trl_mentor.evaluation.records import Sample
from trl_mentor.evaluation.summary import summarize
from trl_mentor.tasks.records import Kind


def sample(benchmark="aime24", problem="1", index=0, score=0.0, answer=None, **changes):
    fields = {"completion": "", "tokens": 10, "truncated": False, "error": None} | changes
    return Sample(benchmark=benchmark, problem=problem, index=index, score=score, answer=answer, **fields)


def run(benchmark, scores, **changes):
    """A run with these scores of each problem."""
    return [
        sample(benchmark, f"p{number}", index, score, **changes)
        for number, problem in enumerate(scores)
        for index, score in enumerate(problem)
    ]


def vote(answers, right):
    """What the most frequent of these answers are worth."""
    voters = [answer for answer in answers if answer is not None]
    most = max(map(voters.count, voters), default=0)
    winners = {answer for answer in voters if voters.count(answer) == most}
    return fmean(right[winner] for winner in winners) if winners else 0.0


def test_pass_at_k_is_the_share_of_the_subsets_of_k_with_a_right_completion():
    for n in range(1, 8):
        for right in range(n + 1):
            for k in range(1, n + 1):
                subsets = [any(place < right for place in subset) for subset in combinations(range(n), k)]
                assert pass_at_k(n, right, k) == float(Fraction(sum(subsets), len(subsets)))


def test_pass_at_k_has_the_chance_of_k_fresh_completions_as_its_mean():
    rng = np.random.default_rng(0)
    chances = rng.beta(0.5, 1.5, 20_000)
    found = fmean(pass_at_k(16, int(right), 4) for right in rng.binomial(16, chances))
    assert found == pytest.approx(fmean(1 - (1 - chances) ** 4), abs=0.005)


def test_pass_at_k_grows_with_k_from_the_mean_and_is_exact_for_many_completions():
    values = [pass_at_k(64, 5, k) for k in range(1, 65)]
    assert values == sorted(values)
    assert (values[0], values[-1]) == (5 / 64, 1.0)
    assert pass_at_k(10_000, 1, 5_000) == 0.5
    assert pass_at_k(10_000, 1, 1) == 1e-4


@pytest.mark.parametrize("k", [0, 4])
def test_k_must_not_be_more_than_there_are_completions(k):
    with pytest.raises(ValueError, match=f"expected k between 1 and the 3 completions of the problem, got {k}"):
        pass_at_k(3, 1, k)
    with pytest.raises(ValueError, match="expected k between 1 and the 3 completions"):
        maj_at_k(["1", "1", "2"], [True, True, False], k)


def test_maj_at_k_is_the_mean_of_the_votes_of_all_subsets_of_k():
    rng = np.random.default_rng(1)
    for n in (1, 2, 4, 7):
        for _ in range(12):
            answers = [[None, "a", "b", "c"][place] for place in rng.integers(4, size=n)]
            right = {"a": True, "b": bool(rng.integers(2)), "c": False, None: False}
            for k in range(1, n + 1):
                votes = [vote(subset, right) for subset in combinations(answers, k)]
                assert maj_at_k(answers, [right[answer] for answer in answers], k) == pytest.approx(fmean(votes))


def test_a_vote_of_one_is_the_mean_of_right_and_unreadable_answers_do_not_outvote():
    answers = ["7", None, None, None, "3", "7"]
    right = [answer == "7" for answer in answers]
    assert maj_at_k(answers, right, 1) == pytest.approx(2 / 6)
    assert maj_at_k(answers, right, 6) == 1.0
    assert maj_at_k(["7", "3"], [True, False], 2) == 0.5
    assert maj_at_k([None, None], [False, False], 2) == 0.0


def test_equal_answers_that_were_judged_differently_count_by_their_share():
    assert maj_at_k(["7", "7", "7", "3"], [True, True, False, False], 4) == pytest.approx(2 / 3)


def test_averages_and_gains_by_hand():
    assert weighted_average([0.5, 0.1], [30, 500]) == pytest.approx((15 + 50) / 530)
    assert macro_average([0.5, 0.1]) == pytest.approx(0.3)
    assert relative_gain(0.30, 0.20) == pytest.approx(0.5)
    assert relative_gain(0.30, 0.0) is None
    assert share([True, False, False, False]) == 0.25


@pytest.mark.parametrize(("n", "k", "mean"), [(30, 1, 0.05), (30, 16, 0.05), (30, 16, 0.5), (100, 1, 0.9)])
def test_intervals_hold_the_truth_as_often_as_they_say(n, k, mean):
    rng = np.random.default_rng(n + k)
    held = 0
    for seed in range(400):
        found = estimate([rng.binomial(k, rng.beta(mean, 1 - mean, n)) / k], resamples=300, seed=seed)
        held += found.low <= mean <= found.high
    assert 0.93 <= held / 400 <= 0.995


def test_intervals_of_gains_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(5)
    held, held_relative = 0, 0
    for seed in range(400):
        chances = rng.beta(0.3, 0.7, 40)
        ours, theirs = (rng.binomial(4, chance) / 4 for chance in (chances + 0.2 * (1 - chances), chances))
        found = gain([list(zip(ours, theirs, strict=True))], resamples=300, seed=seed)
        held += found.difference.low <= 0.14 <= found.difference.high
        held_relative += found.relative.low <= 0.14 / 0.3 <= found.relative.high
    assert 0.93 <= held / 400 <= 0.999
    assert 0.93 <= held_relative / 400 <= 0.999


def test_the_interval_is_scipys_percentile_bootstrap_where_problems_are_many():
    values = np.random.default_rng(2).binomial(8, np.random.default_rng(3).beta(1, 1, 500)) / 8
    resampled = bootstrap((values,), np.mean, n_resamples=3_000, method="percentile", rng=np.random.default_rng(0))
    theirs = resampled.confidence_interval
    ours = estimate([values])
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.005)
    assert ours.value == pytest.approx(values.mean())


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_benchmark_that_is_all_right_or_all_wrong_has_an_interval_with_a_width(value):
    few, many = estimate([[value] * 30]), estimate([[value] * 500])
    assert few.low <= value <= few.high
    assert 0.08 <= few.high - few.low <= 0.12  # Clopper-Pearson: 0.116
    assert 0.004 <= many.high - many.low <= 0.008


def test_two_runs_are_compared_within_problems():
    chances = np.linspace(0, 1, 100)
    paired = gain([[(min(1.0, chance + 0.1), chance) for chance in chances]]).difference
    shuffled = gain(
        [[(min(1.0, chance + 0.1), chance_2) for chance, chance_2 in zip(chances, chances[::-1], strict=True)]]
    )
    assert paired.high - paired.low < (shuffled.difference.high - shuffled.difference.low) / 2


def test_an_average_is_more_certain_than_its_benchmarks_and_weighs_problems():
    small, large = [1.0, 0.0] * 15, [1.0, 1.0, 1.0, 0.0] * 100
    both = estimate([small, large])
    assert both.value == pytest.approx((15 + 300) / 430)
    assert both.high - both.low < estimate([large]).high - estimate([large]).low + 1e-9
    assert both == estimate([small, large])  # the same at every call


def test_a_summary_has_the_figures_of_each_benchmark_and_of_each_kind():
    samples = run("aime24", [[1.0, 0.0], [0.0, 0.0]], answer="7") + run("math500", [[1.0, 1.0]] * 6, answer="7")
    samples += run("humaneval", [[0.5, 1.0]], tokens=30)
    kinds = {"humaneval": Kind.CODE, "aime24": Kind.MATH, "math500": Kind.MATH}
    found = summarize(samples, kinds, ks=[2])
    code, aime, math500 = found.benchmarks
    assert [aime.pass_at[1].value, aime.pass_at[2].value, math500.pass_at[1].value] == [0.25, 0.5, 1.0]
    assert (aime.problems, aime.samples, aime.fewest, aime.most) == (2, 4, 2, 2)
    assert (code.pass_at[1].value, code.maj_at, code.unreadable) == (0.5, {}, None)
    assert code.mean_tokens == 30
    programs, mathematics = found.averages
    assert mathematics.benchmarks == ("aime24", "math500")
    assert mathematics.pass_at[1].value == pytest.approx((2 * 0.25 + 6 * 1.0) / 8)
    assert mathematics.macro == pytest.approx((0.25 + 1.0) / 2)
    assert mathematics.gain is None
    assert programs.pass_at[1] == code.pass_at[1]


def test_what_was_cut_off_not_read_and_not_judged_is_counted_and_wrong():
    samples = [
        sample(index=0, score=1.0, answer="7"),
        sample(index=1, truncated=True),
        sample(index=2, score=None, error="the process was lost", answer="7"),
        sample(index=3, answer="3"),
    ]
    (found,) = summarize(samples, {"aime24": Kind.MATH}, ks=[4]).benchmarks
    assert (found.truncated, found.unreadable, found.unjudged) == (0.25, 0.25, 1)
    assert found.pass_at[1].value == 0.25
    assert found.maj_at[4].value == 0.5
    lost = [sample(index=0, score=None, error="the reference answer cannot be read"), sample(index=1)]
    (found,) = summarize(lost, {"aime24": Kind.MATH}).benchmarks
    assert (found.unreadable, found.unjudged) == (0.5, 1)


def test_an_interrupted_run_has_no_figure_for_more_completions_than_each_problem_has():
    samples = run("aime24", [[1.0, 1.0, 1.0, 1.0], [0.0]], answer="7")
    (found,) = summarize(samples, {"aime24": Kind.MATH}, ks=[4]).benchmarks
    assert (found.fewest, found.most, found.pass_at[4], found.maj_at[4]) == (1, 4, None, None)
    assert found.pass_at[1].value == 0.5  # each problem weighs the same


def test_a_gain_is_over_the_problems_of_both_runs():
    ours = run("aime24", [[1.0], [1.0], [1.0], [0.0]]) + run("math500", [[1.0]])
    theirs = run("aime24", [[1.0], [0.0], [0.0]]) + run("gsm8k", [[1.0]])
    found = summarize(ours, {"aime24": Kind.MATH, "math500": Kind.MATH}, base=theirs)
    aime, math500 = found.benchmarks
    assert (aime.gain.problems, aime.gain.value, aime.gain.base) == (3, 1.0, pytest.approx(1 / 3))
    assert aime.gain.difference.value == pytest.approx(2 / 3)
    assert aime.gain.relative.value == pytest.approx(2.0)
    assert math500.gain is None
    assert found.averages[0].gain.problems == 3


def test_no_gain_is_relative_to_nothing_and_an_endless_interval_is_null_in_json():
    kinds = {"aime24": Kind.MATH}
    nothing = summarize(run("aime24", [[1.0]] * 5), kinds, base=run("aime24", [[0.0]] * 5))
    assert nothing.benchmarks[0].gain.relative is None
    little = summarize(run("aime24", [[1.0]] * 5), kinds, base=run("aime24", [[0.0]] * 4 + [[1.0]]))
    plain = json.loads(json.dumps(little.to_json(), allow_nan=False))
    relative = plain["benchmarks"][0]["gain"]["relative"]
    assert (relative["value"], relative["high"]) == (pytest.approx(4.0), None)
    assert plain["benchmarks"][0]["pass_at"]["1"]["value"] == 1.0
    assert plain["averages"][0]["kind"] == "math"


def test_a_summary_refuses_what_would_count_twice_or_cannot_be_told():
    with pytest.raises(ValueError, match="completion 0 of aime24/1 is there twice"):
        summarize([sample(), sample()], {"aime24": Kind.MATH})
    with pytest.raises(ValueError, match="expected a kind for every benchmark, got none for aime24"):
        summarize([sample()], {})
    with pytest.raises(ValueError, match="got k=0"):
        summarize([sample()], {"aime24": Kind.MATH}, ks=[0])


def test_a_run_without_samples_has_an_empty_summary():
    assert summarize([], {"aime24": Kind.MATH}).to_json() == {"benchmarks": [], "averages": []}

"""The figures of a report, against what the raw lines of its journal say, counted by hand."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
import tiny
from statsmodels.stats.proportion import confint_proportions_2indep

from trl_mentor.counters import Booking, Counters
from trl_mentor.journal import JOURNAL_PATH, Journal, read_journal
from trl_mentor.records import (
    Arm,
    Attempt,
    Call,
    Cause,
    CollapsedGroup,
    Draft,
    Evaluation,
    Event,
    EventKind,
    Guidance,
    HintOrigin,
    Intervention,
    Quality,
    RerollOutcome,
    Return,
    Role,
    RunInfo,
    Usage,
    Verdict,
    VerdictSource,
)
from trl_mentor.report.figure_records import Figures
from trl_mentor.report.figures import MOST, report_figures
from trl_mentor.report.reading import SlimJournal
from trl_mentor.spending import RoleSpending, Spending
from trl_mentor.tallies import Tally

RECOVERED = ("rescued", "hint_saturated")

ENDS = [outcome for outcome in RerollOutcome if outcome is not RerollOutcome.ANOTHER_ROUND]
"""How a group ends; tests/test_rounds.py has groups with several rounds."""


def lines_of(run: Path, kind: str) -> list[dict[str, Any]]:
    """The raw lines of one kind in a journal; those of interventions have no name of their own."""
    lines = [json.loads(line) for line in (run / JOURNAL_PATH).read_text().splitlines()]
    if kind == "intervention":
        return [line for line in lines if "outcome" in line]
    return [line[kind] for line in lines if kind in line]


def guidance(rng: random.Random) -> Guidance | None:
    origin = rng.choice(list(HintOrigin))
    if rng.random() < 0.1:
        return None
    asked = origin in (HintOrigin.ACCEPTED, HintOrigin.FALLBACK, HintOrigin.FAILED)
    drafts = [
        Draft(f"draft {number}", rng.choice([Role.GENERATION, Role.REPAIR]), rng.randint(1, 2), verdict)
        for number in range(rng.randint(0, 4) * asked)
        for verdict in [rng.choice([None, Verdict(rng.choice(list(Quality)), "so", rng.choice(list(VerdictSource)))])]
    ]
    hint = f"hint {rng.randint(0, 40)}" if origin in ("accepted", "fallback", "format") else None
    return Guidance(hint, origin, ("loops",), tuple(drafts), (Call(Role.GENERATION, 1.0, Usage(9, 3)),) * asked)


def intervention(rng: random.Random, step: int) -> Intervention:
    given = guidance(rng)
    outcome = rng.choice(ENDS) if given is None or given.hint else RerollOutcome.SKIPPED
    values = {"rescued": (1.0, 0.25, None, 0.75), "hint_saturated": (1.0,) * 4, "still_collapsed": (0.0,) * 4}
    successes = values.get(outcome, ())
    topic = rng.choice([None, "algebra", "$\\frac{", "<script>alert(1)</script>", f"rare {rng.randint(0, 60)}"])
    group = CollapsedGroup(f"question {step}", (Attempt("no", 0.0),), "7", cause=rng.choice(list(Cause)), topic=topic)
    return Intervention(
        step,
        "mentor",
        group,
        given,
        outcome,
        completions=("text",) * len(successes),
        successes=successes,
        collapsed_at=step - rng.randint(0, 3),
        arm=rng.choice(list(Arm)) if given is not None and given.hint else None,
        reliances=tuple(rng.choice([None, rng.uniform(-2, 0.5)]) for _ in successes) if rng.random() < 0.5 else (),
    )


def booking(rng: random.Random, step: int) -> Booking:
    spent = Spending(
        {
            role: RoleSpending(calls=2, prompt_tokens=rng.randint(10, 99), completion_tokens=7)
            for role in ("judgment",)
        },
        cost=0.5,
    )
    return Booking(
        step,
        Counters(
            batches=1,
            groups=16,
            collapsed=4,
            all_correct=rng.randint(0, 5),
            unscorable=rng.randint(0, 2),
            rescued=1,
            still_collapsed=rng.randint(0, 2),
            cause_knowledge=3,
            cause_format=1,
            handed_over=3,
            lessons=2,
            dropped=1,
            seconds=2.5,
            mentor_seconds=0.5,
            policy_tokens=500 + step,
            reroll_tokens=100,
            control_tokens=20,
            probe_tokens=5,
            completions=64,
            successes=rng.randint(0, 64),
            mentor=spent,
        ),
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with something of everything: 600 interventions in 200 steps."""
    rng, folder = random.Random(5), tmp_path_factory.mktemp("run")
    journal = Journal(folder / JOURNAL_PATH)
    journal.begin(0, RunInfo("mentor", "ahead", "policy", control_fraction=0.3, success_threshold=0.5, priced=True))
    for step in range(200):
        for _ in range(3):
            journal.append(intervention(rng, step))
        journal.book(booking(rng, step))
        past = RerollOutcome(rng.choice(ENDS))
        arm = rng.choice([None, *Arm])
        journal.returned(Return(step, "0" * 16, 0, past, arm, rng.randint(0, 2), 4, probe=rng.random() < 0.3))
        if step % 50 == 0:
            journal.evaluated(Evaluation(step, {"eval_reward": step / 200, "eval_loss": 0.1, "eval_runtime": 9.0}))
            journal.note(Event(EventKind.PAUSED, f"paused at {step}", step))
    journal.close()
    return folder


@pytest.fixture(scope="module")
def figures(run: Path) -> Figures:
    return report_figures(read_journal(run))


def counted(outcomes: list[bool]) -> Tally:
    return Tally(len(outcomes), sum(outcomes))


def assert_comparison(found: Any, treated: list[bool], control: list[bool]) -> None:
    low, high = confint_proportions_2indep(
        sum(treated), len(treated), sum(control), len(control), compare="diff", method="newcomb"
    )
    assert (found.difference, found.low, found.high) == pytest.approx((fmean(treated) - fmean(control), low, high))


def test_counts_of_groups_are_those_of_the_lines(run, figures):
    booked = [item["counters"] for item in lines_of(run, "booking")]
    counts = figures.counts
    assert (counts.groups, counts.collapsed) == (3200, 800)
    assert counts.all_correct == sum(item.get("all_correct", 0) for item in booked)
    outcomes = Counter(line["outcome"] for line in lines_of(run, "intervention"))
    assert {name: getattr(counts.ended, name) for name in outcomes} == outcomes
    assert counts.ended.groups == 600


def test_the_points_of_the_course_add_up_to_the_run(run, figures):
    booked = [item["counters"] for item in lines_of(run, "booking")]
    assert len(figures.points) == 100
    assert [point.step for point in figures.points] == list(range(1, 200, 2))
    for name in ("groups", "rescued", "all_correct", "successes", "reroll_tokens", "probe_tokens"):
        assert sum(getattr(point, name) for point in figures.points) == sum(item.get(name, 0) for item in booked)
    trained = ("all_correct", "mixed", "rescued", "hint_saturated", "still_collapsed", "not_rerolled", "unscorable")
    for point in figures.points:
        assert sum(getattr(point, name) for name in trained) == point.groups
    last = figures.points[-1]
    assert last.total_policy_tokens == sum(item["policy_tokens"] for item in booked)
    spent = [item["mentor"]["roles"]["judgment"] for item in booked]
    mentor_tokens = sum(point.mentor_tokens for point in figures.points)
    assert mentor_tokens == sum(item["prompt_tokens"] + item["completion_tokens"] for item in spent)


def test_recovery_and_uplift_of_each_stratum_are_those_of_the_lines(run, figures):
    found, lines = figures.recovery, lines_of(run, "intervention")

    def recovered(**where: Any) -> list[bool]:
        return [
            line["outcome"] in RECOVERED
            for line in lines
            if line["arm"] == where["arm"]
            and ("cause" not in where or line["group"]["cause"] == where["cause"])
            and ("topic" not in where or line["group"]["topic"] == where["topic"])
        ]

    rerolled = [line for line in lines if line["outcome"] != "skipped"]
    plain = [line for line in rerolled if line["arm"] == "control" or line["guidance"] is None]
    assert found.plain == counted([line["outcome"] in RECOVERED for line in plain])
    assert found.hinted == counted([line["outcome"] in RECOVERED for line in rerolled]) - found.plain

    every = found.uplift[0]
    assert (every.kind, every.hint.groups) == ("all", len(recovered(arm="hint")))
    assert_comparison(every.comparison, recovered(arm="hint"), recovered(arm="control"))
    assert_comparison(found.uplift_over_generic[0].comparison, recovered(arm="hint"), recovered(arm="generic"))
    causes = [row for row in found.uplift if row.kind == "cause"]
    assert len(causes) == len(Cause)
    for row in causes:
        assert_comparison(
            row.comparison, recovered(arm="hint", cause=row.name), recovered(arm="control", cause=row.name)
        )
    topics = {row.name: row for row in found.uplift if row.kind == "topic"}
    assert "<script>alert(1)</script>" in topics
    assert len(topics) <= MOST
    hostile = topics["$\\frac{"]
    assert_comparison(
        hostile.comparison, recovered(arm="hint", topic=hostile.name), recovered(arm="control", topic=hostile.name)
    )


def test_causes_topics_and_hints_are_those_of_the_lines(run, figures):
    lines = lines_of(run, "intervention")
    for row in figures.causes:
        mine = [line for line in lines if line["group"]["cause"] == row.outcomes.name]
        assert row.outcomes.groups == len(mine)
        assert row.outcomes.skipped == sum(line["outcome"] == "skipped" for line in mine)
        assert row.asked == sum(bool(line["guidance"] and line["guidance"]["calls"]) for line in mine)
        assert row.outcomes.recovered == counted(
            [line["outcome"] in RECOVERED for line in mine if line["outcome"] != "skipped"]
        )
    assert {row.outcomes.name: row.groups for row in figures.causes if row.groups} == {"knowledge": 600, "format": 200}

    topics = Counter(line["group"]["topic"] for line in lines)
    del topics[None]
    assert (figures.topics.distinct, len(figures.topics.rows)) == (len(topics), MOST)
    assert {row.groups for row in figures.topics.rows[:3]} == {number for _, number in topics.most_common(3)}
    assert all(topics[row.name] == row.groups for row in figures.topics.rows)

    used = Counter(
        line["guidance"]["hint"]
        for line in lines
        if line["guidance"] and line["guidance"]["hint"] and line["arm"] == "hint" and line["outcome"] != "skipped"
    )
    assert len(figures.hints) == MOST
    assert [hint.outcomes.groups for hint in figures.hints] == [number for _, number in used.most_common(MOST)]
    assert all(used[hint.text] == hint.outcomes.groups for hint in figures.hints)


def test_drafts_and_their_verdicts_are_those_of_the_lines(run, figures):
    found = figures.drafts
    guidances = [line["guidance"] for line in lines_of(run, "intervention") if line["guidance"]]
    assert len(found.reviews) == max(len(item["drafts"]) for item in guidances)
    for review in found.reviews:
        verdicts = [
            item["drafts"][review.number - 1]["verdict"] for item in guidances if len(item["drafts"]) >= review.number
        ]
        grades = Counter(verdict["quality"] if verdict else None for verdict in verdicts)
        assert (review.high, review.low, review.unjudged) == (grades["HIGH"], grades["LOW"], grades[None])
    verdicts = [draft["verdict"] for item in guidances for draft in item["drafts"] if draft["verdict"]]
    graded = Counter((verdict["source"], verdict["quality"]) for verdict in verdicts)
    assert {(row.source, "LOW"): row.low for row in found.graders} == {
        key: number for key, number in graded.items() if key[1] == "LOW"
    }


def test_transfer_is_that_of_the_lines_apart_for_training_and_probes(run, figures):
    found, lines = figures.transfer, lines_of(run, "returned")
    assert found.returns == len(lines) == 200
    assert [row.name for row in found.rows] == ["training", "probe"]
    for row, probe in zip(found.rows, (False, True), strict=True):
        mine = [line for line in lines if line["probe"] is probe]

        def solved(mine: Any = mine, **where: Any) -> list[bool]:
            return [
                line["successes"] > 0 for line in mine if all(line[key] in values for key, values in where.items())
            ]

        assert row.rescued == counted(solved(outcome=["rescued"]))
        assert row.others == counted(solved(outcome=["still_collapsed", "skipped"]))
        assert row.hint_saturated == counted(solved(outcome=["hint_saturated"]))
        assert_comparison(row.comparison, solved(outcome=["rescued"]), solved(outcome=["still_collapsed", "skipped"]))
    training = [line for line in lines if not line["probe"]]
    arms = {arm: [line["successes"] > 0 for line in training if line["arm"] == arm] for arm in Arm}
    row, probes = found.rows
    assert {Arm.HINT: row.hint, Arm.CONTROL: row.control, Arm.GENERIC: row.generic} == {
        arm: counted(hits) for arm, hits in arms.items()
    }
    assert_comparison(row.uplift, arms[Arm.HINT], arms[Arm.CONTROL])
    assert (probes.hint, probes.control, probes.generic, probes.uplift) == (Tally(), Tally(), Tally(), None)


def test_reliance_is_that_of_the_successes(run, figures):
    found = figures.reliance
    values = [
        value
        for line in lines_of(run, "intervention")
        for value, success in zip(line["reliances"], line["successes"], strict=False)
        if value is not None and success is not None and success > 0.5
    ]
    assert (found.count, sum(found.bins)) == (len(values), len(values))
    assert (found.mean, found.median) == pytest.approx((fmean(values), median(values)))
    assert (found.edges[0], found.edges[-1]) == (min(values), max(values))
    for low, high, number in list(zip(found.edges, found.edges[1:], found.bins, strict=False))[:-1]:
        assert number == sum(low <= value < high for value in values)


def test_the_bill_events_and_evaluations_are_those_of_the_lines(run, figures):
    booked = [item["counters"] for item in lines_of(run, "booking")]
    assert figures.bill.policy_tokens == sum(item["policy_tokens"] for item in booked)
    assert (figures.bill.cost, figures.bill.waited_seconds) == (100.0, 100.0)
    assert figures.repeated is None
    assert [event.text for event in figures.events] == [f"paused at {step}" for step in (0, 50, 100, 150)]
    (curve,) = figures.evaluations
    assert (curve.name, curve.points) == ("eval_reward", ((0, 0.0), (50, 0.25), (100, 0.5), (150, 0.75)))


def test_the_records_that_a_report_keeps_in_memory_have_the_same_figures(run, figures):
    assert report_figures(SlimJournal(run).records) == figures


def test_a_journal_without_a_line_has_no_figure(tmp_path):
    Journal(tmp_path / JOURNAL_PATH).close()
    figures = report_figures(read_journal(tmp_path))
    assert (figures.step, figures.counts.groups, figures.bill, figures.reliance) == (None,) * 4
    assert (figures.points, figures.recovery.uplift, figures.causes, figures.transfer.rows) == ((),) * 4
    assert (figures.recovery.hinted, figures.recovery.plain, figures.drafts.reviews) == (Tally(), Tally(), ())


def test_a_journal_from_before_bookings_gives_what_interventions_tell(tmp_path, run, figures):
    file = tmp_path / JOURNAL_PATH
    file.parent.mkdir()
    lines = lines_of(run, "intervention")
    old = [{key: value for key, value in line.items() if key not in ("arm", "reliances")} for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in old))
    known = report_figures(read_journal(tmp_path))
    counts = known.counts
    assert (counts.groups, counts.collapsed, counts.all_correct, known.bill) == (None,) * 4
    assert counts.ended == figures.counts.ended
    assert (known.recovery.uplift, known.points, known.reliance) == ((), (), None)
    assert {row.groups for row in known.causes} == {None}
    hinted = [line for line in old if line["guidance"] and line["guidance"]["hint"] and line["outcome"] != "skipped"]
    assert known.recovery.hinted == counted([line["outcome"] in RECOVERED for line in hinted])


def test_a_resumed_run_says_what_was_done_twice(tmp_path):
    journal, rng = Journal(tmp_path / JOURNAL_PATH), random.Random(1)
    journal.begin(0, RunInfo("mentor", "inline"))
    for step in range(4):
        journal.book(booking(rng, step))
    journal.begin(2, RunInfo("mentor", "inline"))
    journal.book(booking(rng, 2))
    journal.close()
    figures = report_figures(read_journal(tmp_path))
    assert figures.repeated.policy_tokens == 502 + 503
    assert figures.bill.policy_tokens == 500 + 501 + 502
    assert (figures.counts.groups, figures.step) == (3 * 16, 2)
    assert figures.bill.cost is None


def test_figures_of_a_real_run_with_a_control_are_those_of_its_lines(tmp_path):
    tiny.trained(
        tmp_path,
        reward=tiny.HardRowsFail(rerolls=True),
        data=tiny.dataset(8).add_column("topic", [f"t{i % 3}" for i in range(8)]),
        max_steps=6,
        mentor_control_fraction=0.5,
    )
    figures, lines = report_figures(read_journal(tmp_path)), lines_of(tmp_path, "intervention")
    booked = [item["counters"] for item in lines_of(tmp_path, "booking")]
    assert figures.run.control_fraction == 0.5
    assert figures.counts.groups == sum(item.get("groups", 0) for item in booked) == 24
    assert figures.counts.ended.groups == len(lines) == 12
    assert figures.bill.policy_tokens == sum(item["policy_tokens"] for item in booked if "policy_tokens" in item)
    assert figures.bill.mentor.calls == sum(len(line["guidance"]["calls"]) for line in lines)
    every = figures.recovery.uplift[0]
    arms = Counter(line["arm"] for line in lines)
    assert (every.hint.groups, every.control.groups) == (arms["hint"], arms["control"])
    assert {row.name: row.groups for row in figures.topics.rows} == Counter(line["group"]["topic"] for line in lines)
    assert figures.transfer.returns == len(lines_of(tmp_path, "returned")) > 0


@pytest.mark.parametrize(("strategy", "plain", "left"), [("none", 0, 2), ("resample", 2, 0)])
def test_a_run_without_a_mentor_has_figures_of_what_it_did(tmp_path, strategy, plain, left):
    tiny.trained(tmp_path, mentor_strategy=strategy, reward=tiny.HardRowsFail(rerolls=strategy != "none"))
    figures = report_figures(read_journal(tmp_path))
    assert figures.counts.collapsed == 2
    assert (figures.recovery.plain.groups, figures.recovery.hinted) == (plain, Tally())
    assert figures.drafts.reviews == ()
    assert figures.bill.mentor_tokens == 0
    (point,) = figures.points
    assert (point.groups, point.not_rerolled) == (4, left)

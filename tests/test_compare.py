"""`trl-mentor compare`: curves, bands and differences as computed by hand, from journals alone."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import tiny
from matplotlib.image import imread
from scipy import stats
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from trl_mentor.cli.compare_tables import sheets
from trl_mentor.cli.main import main
from trl_mentor.comparison.compared import compare
from trl_mentor.comparison.intervals import band, difference
from trl_mentor.comparison.runs import read_methods, read_run, split_label
from trl_mentor.comparison.tracks import SUCCESS_RATE, Count
from trl_mentor.counters import Booking, Counters
from trl_mentor.errors import ConfigError
from trl_mentor.journal import JOURNAL_PATH, Journal
from trl_mentor.records import CollapsedGroup, Evaluation, Intervention, RerollOutcome, Role, RunInfo
from trl_mentor.spending import RoleSpending, Spending

INFO = RunInfo(strategy="mentor", schedule="inline", model="m", num_generations=4, world_size=1, version="0.1")
PLAIN = replace(INFO, strategy="none")


def batch(tokens: int = 100, seconds: float = 10.0, successes: int = 5, mentor: int = 0) -> Counters:
    spending = Spending({str(Role.GENERATION): RoleSpending(prompt_tokens=mentor)}, cost=mentor / 100)
    return Counters(
        batches=1, policy_tokens=tokens, seconds=seconds, completions=10, successes=successes, mentor=spending
    )


def write_run(
    folder: Path,
    batches: Sequence[Counters],
    evaluations: Mapping[int, float] | None = None,
    *,
    info: RunInfo = INFO,
    begin: int = 0,
) -> Path:
    """A run with one optimizer step for each batch; `evaluations` is the reward measured after so many steps."""
    journal = Journal(folder / JOURNAL_PATH)
    journal.begin(begin, info)
    for step, counters in enumerate(batches, begin):
        journal.book(Booking(step, counters))
        if step + 1 in (evaluations or {}):
            journal.evaluated(Evaluation(step + 1, {"eval_loss": 0.0, "eval_reward": evaluations[step + 1]}))
    journal.close()
    return folder


def standings(arguments: Sequence[object], axis: int = 0, **options):
    methods, _ = read_methods([str(argument) for argument in arguments])
    return compare(methods, **options).races[axis].standings


def means(bands) -> list[float | None]:
    return [None if found is None else found.mean for found in bands]


def test_evaluations_are_compared_at_equal_tokens_up_to_the_shorter_run(tmp_path):
    a = write_run(tmp_path / "a", [batch(100)] * 3, {1: 0.2, 2: 0.4, 3: 0.6}, info=PLAIN)
    b = write_run(tmp_path / "b", [batch(200)] * 2, {1: 0.1, 2: 0.5})
    methods, _ = read_methods([str(a), str(b)])
    comparison = compare(methods, threshold=0.25)
    race = comparison.races[0]
    assert comparison.metric == "eval_reward"
    assert (race.start, race.budget, race.ended_by) == (200.0, 300.0, str(a))
    first, second = race.standings
    assert means(first.at) == [None, None, pytest.approx(0.45), pytest.approx(0.6)]
    assert means(second.at) == [None, None, pytest.approx(0.15), pytest.approx(0.3)]
    assert (first.mean.mean, second.mean.mean) == (pytest.approx(0.5), pytest.approx(0.2))
    assert (first.reach.spent.mean, second.reach.spent.mean) == (pytest.approx(200), pytest.approx(275))
    assert first.final_difference is None
    assert second.final_difference.difference == pytest.approx(-0.3)
    assert "longest run goes to 400" in comparison.notes[0]


def test_area_is_exact_where_evaluations_lie_between_the_points_of_the_grid(tmp_path):
    run = write_run(tmp_path / "a", [batch(100), batch(37), batch(200)], {1: 0.0, 2: 1.0, 3: 0.0})
    (found,) = standings([run])
    assert found.mean.mean == pytest.approx(0.5)


def test_equal_seconds_differ_from_equal_tokens(tmp_path):
    fast = write_run(tmp_path / "a", [batch(100, 1.0)] * 3, {1: 0.0, 3: 0.4}, info=PLAIN)
    slow = write_run(tmp_path / "b", [batch(100, 2.0)] * 3, {1: 0.0, 3: 0.8})
    assert means(found.at[-1] for found in standings([fast, slow])) == [pytest.approx(0.4), pytest.approx(0.8)]
    assert means(found.at[-1] for found in standings([fast, slow], 1)) == [pytest.approx(0.4), pytest.approx(0.2)]


def test_tokens_of_the_mentor_count_where_they_are_asked_for(tmp_path):
    plain = write_run(tmp_path / "a", [batch()] * 3, {1: 0.0, 3: 0.4}, info=PLAIN)
    hints = write_run(tmp_path / "b", [batch(mentor=100)] * 3, {1: 0.0, 3: 0.8}, info=replace(INFO, priced=True))
    assert means(found.at[-1] for found in standings([plain, hints])) == [pytest.approx(0.4), pytest.approx(0.8)]
    counted = standings([plain, hints], count=Count.ALL)
    assert means(found.at[-1] for found in counted) == [pytest.approx(0.4), pytest.approx(0.2)]
    (bill,) = counted[1].bills
    assert (bill.policy_tokens, bill.mentor_tokens, bill.cost) == (200, 200, 2.0)
    assert counted[0].bills[0].cost is None


def test_a_threshold_that_some_seed_does_not_reach_has_no_mean(tmp_path):
    quick = write_run(tmp_path / "a", [batch()] * 3, {1: 0.0, 3: 0.8})
    slow = write_run(tmp_path / "b", [batch()] * 3, {1: 0.0, 3: 0.4}, info=replace(INFO, seed=1))
    (found,) = standings([quick, slow], threshold=0.6)
    assert (found.reach.seeds, found.reach.spent) == (1, None)
    (found,) = standings([quick, slow], threshold=0.2)
    assert (found.reach.spent.low, found.reach.spent.high) == (pytest.approx(150), pytest.approx(200))


def test_the_bill_ends_with_the_batch_that_spends_the_last_of_the_budget(tmp_path):
    short = write_run(tmp_path / "a", [batch(100)] * 3, info=PLAIN)
    same, coarse = write_run(tmp_path / "b", [batch(100)] * 5), write_run(tmp_path / "c", [batch(200)] * 5)
    found = standings([short, f"same={same}", f"coarse={coarse}"])
    assert [item.bills[0].policy_tokens for item in found] == [300, 300, 400]


def test_the_table_of_the_bill_has_the_parts_that_some_run_has_by_their_names(tmp_path):
    more = Counters(reroll_tokens=60, control_tokens=20, mentor_seconds=1.0, reroll_seconds=5.0)
    runs = [
        write_run(tmp_path / "a", [batch(100)] * 2, info=PLAIN),
        write_run(tmp_path / "b", [batch(100) + more] * 2),
    ]
    comparison = compare(read_methods([str(run) for run in runs])[0])
    sheet = sheets(comparison, comparison.races[0])[-1]
    assert sheet.rows == (
        ("policy tokens", "200", "200"),
        ("  first rolls", "200", "80"),
        ("  re-rolls", "0", "80"),
        ("  re-rolls with the hint withheld", "0", "40"),
        ("mentor tokens", "0", "0"),
        ("seconds", "20", "20"),
        ("  waited for the mentor", "0", "2"),
        ("  re-rolls", "0", "10"),
        ("cost of the mentor", "no prices", "no prices"),
    )


def test_without_evaluations_the_success_of_first_rolls_is_smoothed_over_a_window(tmp_path):
    run = write_run(tmp_path / "a", [batch(successes=0), batch(successes=5), batch(successes=10)])
    methods, _ = read_methods([str(run)])
    comparison = compare(methods)
    race = comparison.races[0]
    (found,) = race.standings
    assert comparison.metric == SUCCESS_RATE
    assert comparison.notes[0] == "the runs share no evaluation metric over a common budget"
    assert "on training prompts" in comparison.notes[1]
    assert means(found.at) == [0.0, 0.5, 1.0, 1.0]
    # Around 99, 30 tokens wide, are 16 tokens of the first batch and 14 of the second: 3 completions, 0.7 succeed.
    (point,) = [i for i, spent in enumerate(race.grid) if math.isclose(spent, 99)]
    assert found.curve[point].mean == pytest.approx(0.7 / 3)


def test_what_is_booked_after_the_last_batch_leaves_the_curve_alone(tmp_path):
    tail = Counters(seconds=1000.0)
    run = write_run(tmp_path / "a", [batch(successes=0), batch(successes=10), tail])
    methods, _ = read_methods([str(run)])
    race = compare(methods).races[1]
    assert race.budget == 20.0
    assert race.standings[0].at[-1].mean == 1.0


@pytest.mark.parametrize("values", [[0.1, 0.4, 0.35], [0.2, 0.2, 0.2], [-1.0, 5.0, 2.0, 2.5, 0.0]])
def test_three_seeds_or_more_have_the_t_interval_of_statistics_libraries(values):
    found = band(values)
    low, high = DescrStatsW(values).tconfint_mean(0.05)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_two_seeds_have_their_range_and_one_has_itself():
    assert (band([0.2, 0.6]).low, band([0.2, 0.6]).mean, band([0.2, 0.6]).high) == (0.2, 0.4, 0.6)
    assert (band([0.2]).low, band([0.2]).high) == (0.2, 0.2)


def test_methods_with_the_same_seeds_are_compared_within_seeds():
    ours, theirs = [(0, 0.5), (1, 0.7), (2, 0.8)], [(2, 0.75), (0, 0.3), (1, 0.6)]
    found = difference(ours, theirs)
    expected = stats.ttest_rel([0.5, 0.7, 0.8], [0.3, 0.6, 0.75]).confidence_interval(0.95)
    assert found.test == "paired, n=3"
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert found.difference == pytest.approx(0.35 / 3)


@pytest.mark.parametrize("seeds", [(3, 4), (0, 1, 1)])
def test_methods_with_other_seeds_are_compared_by_welch(seeds):
    ours, theirs = [0.5, 0.7, 0.8], [0.3, 0.6, 0.1][: len(seeds)]
    found = difference(list(enumerate(ours)), list(zip(seeds, theirs, strict=True)))
    low, high = CompareMeans(DescrStatsW(ours), DescrStatsW(theirs)).tconfint_diff(0.05, usevar="unequal")
    assert found.test == f"Welch, n=3 and {len(seeds)}"
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_runs_that_repeat_a_seed_are_no_pairs():
    assert difference([(0, 0.5), (1, 0.7), (1, 0.8)], [(0, 0.3), (1, 0.6), (1, 0.1)]).test == "Welch, n=3 and 3"


def test_one_seed_has_no_interval_and_equal_seeds_one_without_width():
    lone = difference([(0, 0.5)], [(0, 0.25)])
    assert (lone.difference, lone.low, lone.high, lone.test) == (0.25, None, None, "none, n=1 and 1")
    still = difference([(0, 0.5), (1, 0.5)], [(2, 0.25), (3, 0.25)])
    assert (still.low, still.high) == (0.25, 0.25)


def test_runs_without_labels_that_differ_in_seed_alone_are_one_method(tmp_path):
    infos = [
        INFO,
        replace(INFO, seed=1),
        replace(INFO, control_fraction=0.3),
        replace(PLAIN, seed=1),
        replace(INFO, seed=2, world_size=8),
    ]
    runs = [write_run(tmp_path / str(i), [batch()], info=info) for i, info in enumerate(infos)]
    methods, notes = read_methods([str(run) for run in runs])
    assert {method.label: [run.info.seed for run in method.runs] for method in methods} == {
        "mentor, control none": [0, 1, 2],
        "mentor, control 0.3": [0],
        "none": [1],
    }
    assert notes == ["the runs had 1, 8 processes: their seconds do not compare"]
    assert compare(methods).baseline == "none"


def test_runs_that_train_re_rolled_groups_in_another_way_or_time_are_other_methods(tmp_path):
    paper = replace(INFO, rescue="replace, hinted")
    infos = [paper, replace(paper, rescue="single, original"), replace(paper, dosage="linear decay", seed=1)]
    runs = [write_run(tmp_path / str(i), [batch()], info=info) for i, info in enumerate(infos)]
    assert [method.label for method in read_methods(list(map(str, runs)))[0]] == [
        "mentor, rescue replace, hinted, dosage none",
        "mentor, rescue single, original, dosage none",
        "mentor, rescue replace, hinted, dosage linear decay",
    ]


def test_runs_that_their_journals_do_not_tell_apart_stand_alone(tmp_path):
    runs = [write_run(tmp_path / name, [batch()]) for name in ("good_hints", "bad_hints")]
    methods, (note,) = read_methods([str(run) for run in runs])
    assert [len(method.runs) for method in methods] == [1, 1]
    assert "write LABEL=RUN" in note


def test_runs_under_one_label_that_are_no_seeds_of_one_method_are_named(tmp_path):
    a = write_run(tmp_path / "a", [batch()])
    b = write_run(tmp_path / "b", [batch()], info=replace(INFO, num_generations=8))
    methods, notes = read_methods([f"x={a}", f"x={b}"])
    assert [method.label for method in methods] == ["x"]
    assert any("'x' differ in num_generations: 4, 8" in note for note in notes)
    assert any("same seed (0)" in note for note in notes)


def test_an_equals_sign_in_the_name_of_a_run_makes_no_label(tmp_path):
    odd = write_run(tmp_path / "lr=3", [batch()])
    methods, _ = read_methods([str(odd)])
    assert methods[0].label == "mentor"
    methods, _ = read_methods([f"mine={odd}"])
    assert (methods[0].label, methods[0].runs[0].name) == ("mine", str(odd))


def test_a_run_given_twice_is_refused_however_it_is_written(tmp_path):
    run = write_run(tmp_path / "a", [batch()])
    with pytest.raises(ConfigError, match="given 2 times"):
        read_methods([str(run), f"again={run / JOURNAL_PATH}"])


def test_steps_that_a_resumed_run_did_again_count_once_and_are_disclosed(tmp_path):
    run = write_run(tmp_path / "a", [batch(successes=0)] * 3, {1: 0.1, 2: 0.9, 3: 0.9})
    write_run(run, [batch(50, successes=10)] * 2, {2: 0.3, 3: 0.5}, begin=1)
    methods, notes = read_methods([str(run)])
    race = compare(methods).races[0]
    assert (race.start, race.budget) == (100.0, 200.0)
    assert [point.mean for point in (race.standings[0].curve[0], race.standings[0].curve[-1])] == [0.1, 0.5]
    assert notes == [f"{run} was resumed: 200 policy tokens and 20 s of steps done again are not counted"]


def test_evaluations_that_are_no_numbers_are_passed_over(tmp_path):
    run = write_run(tmp_path / "a", [batch()] * 3, {1: 0.2, 2: math.nan, 3: 0.6})
    (found,) = standings([run])
    assert found.at[-1].mean == 0.6
    assert found.mean.mean == pytest.approx(0.4)


def test_a_metric_that_a_run_lacks_is_an_error_with_those_it_has(tmp_path):
    run = write_run(tmp_path / "a", [batch()] * 2, {1: 0.2, 2: 0.3})
    with pytest.raises(ConfigError, match="'eval_rewrad'; it has: success_rate, eval_loss, eval_reward"):
        standings([run], metric="eval_rewrad")
    (found,) = standings([run], metric=SUCCESS_RATE)
    assert found.at[-1].mean == 0.5


def test_runs_whose_evaluations_share_no_budget_are_compared_by_first_rolls(tmp_path):
    a = write_run(tmp_path / "a", [batch()] * 2, {1: 0.2, 2: 0.3}, info=PLAIN)
    b = write_run(tmp_path / "b", [batch(500)] * 2, {1: 0.2, 2: 0.3})
    assert compare(read_methods([str(a), str(b)])[0]).metric == SUCCESS_RATE
    with pytest.raises(ConfigError, match=r"share no range of tokens: .*a knows eval_reward up to 200, .*b from 500"):
        standings([a, b], metric="eval_reward")


def test_a_journal_of_an_older_version_is_named_as_such(tmp_path):
    journal = Journal(tmp_path / JOURNAL_PATH)
    journal.begin(0)
    journal.append(Intervention(0, "mentor", CollapsedGroup("q", ()), None, RerollOutcome.SKIPPED))
    journal.close()
    with pytest.raises(ConfigError, match="written by a version of trl-mentor that did not book tokens"):
        read_run(str(tmp_path))


def test_a_run_that_has_just_begun_is_left_out(tmp_path, capsys):
    begun, new = write_run(tmp_path / "a", [batch()]), write_run(tmp_path / "b", [])
    methods, notes = read_methods([str(begun), str(new)])
    assert [method.label for method in methods] == ["mentor"]
    assert notes == [f"{new} has not finished a batch yet and is left out"]
    assert main(["compare", str(new)]) == 2
    assert "none of the runs has finished a generation batch" in capsys.readouterr().err


HOSTILE = "$x_{$ <script>alert(1)</script> [red]\x1b[31m\u202e_&amp;\ud800"


class Tags(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs


def test_hostile_labels_are_text_on_the_page_in_the_picture_and_on_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "<img src=x onerror=alert(2)>"
    write_run(folder, [batch()] * 3, {1: 0.1, 3: 0.3})
    other = write_run(tmp_path / "b", [batch()] * 3, {1: 0.1, 3: 0.2}, info=PLAIN)
    assert main(["compare", f"{HOSTILE}={folder}", f"_{HOSTILE * 20}={other}"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[red]" in out
    page = (tmp_path / "compare.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    tags = Tags()
    tags.feed(page)
    assert {"table", "td", "img"} <= tags.names
    assert not tags.names & {"script", "a", "link", "iframe", "red", "b"}
    assert [(name, value[:22]) for name, value in tags.attributes if name in ("src", "href", "onerror")] == [
        ("src", "data:image/png;base64,")
    ]
    assert imread(io.BytesIO((tmp_path / "compare.png").read_bytes())).shape[1] > 1000


def test_a_slip_of_the_command_line_does_not_replace_a_journal(tmp_path, capsys):
    run = write_run(tmp_path / "a", [batch()])
    before = (run / JOURNAL_PATH).read_bytes()
    assert main(["compare", str(run), "-o", str(run / JOURNAL_PATH)]) == 2
    assert "-o must be a file that ends in .html" in capsys.readouterr().err
    assert (run / JOURNAL_PATH).read_bytes() == before


@pytest.mark.parametrize(("asked", "status"), [((), 0), (("--png", "mine.png"), 2)])
def test_without_matplotlib_there_are_tables_and_the_extra_is_named(tmp_path, asked, status):
    run = write_run(tmp_path / "a", [batch()])
    code = (
        "import sys; sys.modules['matplotlib'] = None; from trl_mentor.cli.main import main; "
        f"raise SystemExit(main(['compare', {str(run)!r}, *{asked!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == status
    assert "pip install 'trl-mentor[report]'" in done.stdout + done.stderr
    assert [path.name for path in tmp_path.glob("*.*")] == ([] if status else ["compare.html"])
    assert status or "<img" not in (tmp_path / "compare.html").read_text(encoding="utf-8")


def test_a_label_may_be_longer_than_a_file_name(tmp_path):
    run = write_run(tmp_path / "a", [batch()])
    assert split_label("x" * 3000 + f"={run}") == ("x" * 3000, str(run))


def even_and_easy(completions: list[str], hard: list[bool], **kwargs: object) -> list[float]:
    """Hard rows fail; the others succeed by the number of their words."""
    return [float(not no and len(text.split()) % 2 == 0) for text, no in zip(completions, hard, strict=True)]


def test_two_trainings_are_compared_from_what_they_wrote(tmp_path, monkeypatch, capsys):
    trainers = {}
    for strategy in ("none", "mentor"):
        for seed in (7, 8):
            made = tiny.trainer(
                tmp_path / f"{strategy}-{seed}",
                mentor_strategy=strategy,
                seed=seed,
                max_steps=4,
                eval_strategy="steps",
                eval_steps=1,
                per_device_eval_batch_size=16,
                eval_dataset=tiny.dataset(4),
                reward=even_and_easy,
            )
            made.train()
            trainers[made.args.output_dir] = made
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(["compare", *trainers, "--json", "out/compare.json", "--threshold", "0.1"]) == 0
    out = capsys.readouterr().out
    assert "eval_reward at equal policy tokens" in out
    assert "paired" in out
    found = json.loads((tmp_path / "out" / "compare.json").read_text(encoding="ascii"))
    assert (found["metric"], found["baseline"]) == ("eval_reward", "none")
    assert [standing["label"] for standing in found["races"][0]["standings"]] == ["none", "mentor"]
    totals = {name: made.mentor_totals for name, made in trainers.items()}
    shortest = min(totals, key=lambda name: totals[name].policy_tokens)
    assert found["races"][0]["ended_by"] == shortest
    assert found["races"][0]["budget"] == totals[shortest].policy_tokens
    curves = {run["run"]: run["values"] for standing in found["races"][0]["standings"] for run in standing["runs"]}
    last = [log["eval_reward"] for log in trainers[shortest].state.log_history if "eval_reward" in log][-1]
    assert curves[shortest][-1] == pytest.approx(last)
    assert (tmp_path / "compare.html").read_text(encoding="utf-8").count("<table>") == 9
    assert imread("compare.png").ndim == 3

"""The demo from end to end, in this process, on a budget of a few batches."""

from __future__ import annotations

import argparse
import io
import json

import pytest
from rich.console import Console

from trl_mentor import read_journal
from trl_mentor.cli.main import main as cli
from trl_mentor.demo import run as demo
from trl_mentor.demo.report import DISCLAIMER, choose_example, ends, sparkline
from trl_mentor.demo.training import Budget
from trl_mentor.errors import ConfigError
from trl_mentor.records import RerollOutcome

TINY = Budget(tokens=5_000, train_per_family=6, held_out_per_family=2, samples=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("demo")
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=False)
    result = demo.run_demo([3], short=True, output_dir=directory, budget=TINY, console=console)
    return directory, result, screen.getvalue()


def test_both_methods_stop_within_one_batch_of_the_same_number_of_tokens(finished):
    _, result, _ = finished
    assert [run["method"] for run in result["runs"]] == ["GRPO", "MENTOR"]
    for run in result["runs"]:
        tokens = run["collapsed_over_time"]["tokens"]
        assert tokens[-1] == run["tokens"] >= TINY.tokens
        assert len(tokens) == run["steps"] == run["totals"]["batches"]
        assert all(before < TINY.tokens for before in tokens[:-1])


def test_mentor_rescues_groups_that_grpo_leaves(finished):
    _, result, _ = finished
    plain, mentored = (run["totals"] for run in result["runs"])
    assert plain["collapsed"] > 0
    assert plain["reroll_completions"] == len(plain["mentor"]["roles"]) == 0
    assert mentored["rescued"] > 0
    assert mentored["failed"] == sum(role["errors"] for role in mentored["mentor"]["roles"].values()) == 0
    outcomes = sum(mentored[name] for name in ("rescued", "hint_saturated", "still_collapsed", "skipped"))
    assert outcomes == mentored["collapsed"]


def test_the_re_rolls_are_paid_for_out_of_the_same_budget(finished):
    _, result, _ = finished
    plain, mentored = result["runs"]
    assert mentored["totals"]["reroll_tokens"] > 0
    assert mentored["steps"] < plain["steps"]


def test_the_result_is_json_with_what_is_needed_to_judge_it(finished):
    _, result, _ = finished
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["world"] == DISCLAIMER
    assert result["seeds"] == [3]
    assert set(result["versions"]) == {"python", "trl-mentor", "trl", "transformers", "torch"}
    families = set(result["held_out_accuracy_before"])
    assert all(set(run["held_out_accuracy_after"]) == families for run in result["runs"])


def test_the_screen_shows_an_intervention_the_comparison_and_the_limits_of_the_world(finished):
    directory, _, screen = finished
    example = choose_example(read_journal(directory / "seed3" / "MENTOR"))
    words = screen.split()
    verdict = "Held-out accuracy without hints, same tokens:"
    plan = "in a synthetic world made for this demo"
    for text in (example.group.question, example.guidance.hint, *example.completions, DISCLAIMER, plan, verdict):
        assert " ".join(text.split()) in " ".join(words)
    assert "GRPO" in words
    assert "MENTOR" in words
    commands = screen.splitlines()[-2:]
    assert max(len(line) for line in screen.splitlines() if line not in commands) <= 80


def test_the_screen_ends_with_commands_that_work_on_the_runs(finished, capsys):
    directory, _, screen = finished
    report, compare = (line.split() for line in screen.splitlines()[-2:])  # unbroken, to be copied
    assert cli([*report[report.index("report") :], "-o", str(directory / "page.html")]) == 0
    files = ["-o", str(directory / "c.html"), "--png", str(directory / "c.png")]
    assert cli([*compare[compare.index("compare") :], *files]) == 0
    assert "eval_accuracy" in capsys.readouterr().out


def test_the_journal_of_the_run_shows_the_loop_on_real_failures(finished):
    directory, result, _ = finished
    journal = read_journal(directory / "seed3" / "MENTOR")
    assert len(journal) == result["runs"][1]["totals"]["collapsed"]
    rescued = [item for item in journal if item.outcome is RerollOutcome.RESCUED]
    assert all(item.guidance.hint and item.group.answer for item in rescued)
    assert all(item.group.answer not in item.guidance.hint for item in rescued)


def test_a_directory_with_an_earlier_journal_is_refused_before_any_work(finished):
    directory, _, _ = finished
    with pytest.raises(ConfigError, match="earlier demo"):
        demo.run_demo([3], short=True, output_dir=directory, budget=TINY)


def test_the_flags_have_the_documented_defaults_and_zero_seeds_are_refused(tmp_path):
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    defaults = parser.parse_args([])
    assert (defaults.seeds, defaults.short, defaults.json, defaults.control_fraction) == (1, False, None, 0)
    with pytest.raises(ConfigError, match="--seeds is 0"):
        demo.run(parser.parse_args(["--seeds", "0", "--output-dir", str(tmp_path)]))


def test_a_sparkline_is_full_where_all_collapse_and_low_where_none_does():
    assert sparkline([10, 20, 30, 40], [1.0, 1.0, 0.0, 0.0]) == "\u2588\u2588\u2581\u2581"
    assert sparkline([10, 20, 90], [1.0, 1.0, 0.0]) == "\u2588\u2588\u2581"
    assert len(sparkline(range(1, 501), [0.5] * 500)) == 60
    assert ends([1.0] * 10 + [0.0] * 10) == (1.0, 0.0)


def test_the_control_re_rolls_without_a_hint_and_without_a_mentor(tmp_path):
    console = Console(file=io.StringIO())
    result = demo.run_demo([0], short=True, output_dir=tmp_path, resample=True, budget=TINY, console=console)
    assert [run["method"] for run in result["runs"]] == ["GRPO", "RESAMPLE", "MENTOR"]
    control = result["runs"][1]["totals"]
    assert control["reroll_completions"] > len(control["mentor"]["roles"]) == 0
    assert {item.guidance for item in read_journal(tmp_path / "seed0" / "RESAMPLE")} == {None}

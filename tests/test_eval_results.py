"""The figures of an evaluation's folder, against a few lines that compute them from the samples."""

from __future__ import annotations

import json
import struct
import sys
from collections import Counter, defaultdict
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.records import Sample
from trl_mentor.evaluation.results import write_results
from trl_mentor.evaluation.settings import EngineKind, Policy, Sampling, settings_record
from trl_mentor.evaluation.store import Folder

K = 4
ANSWERS = {
    "a": ["1", "1", "2", None],
    "b": ["2", "2", "2", "1"],
    "c": [None, None, None, None],
    "d": ["1", "2", "3", "1"],
    "e": ["1", "1", "1", "1"],
}
"""What was read from each completion; "1" is right."""


def folder(path: Path, answers: dict[str, list[str | None]], name: str = "gsm8k", **changes: Any) -> Folder:
    """A finished evaluation; `changes` are settings, or `export`, `digest` and `problems` of the benchmark."""
    made = Folder(path)
    record = {"problems": len(answers), "digest": "d", "export": ""}
    record |= {key: changes.pop(key) for key in record.keys() & changes.keys()}
    settings = settings_record(Policy("some/model"), Sampling(num_samples=K), EngineKind.VLLM, limit=None)
    with made.locked():
        made.begin({**settings, **changes}, {name: record}, {})
        made.append(
            name,
            [
                Sample(name, problem, index, f"```\n{answer}\n```", 10 * index, index == 3, score(answer), answer)
                for problem, found in answers.items()
                for index, answer in enumerate(found)
            ],
        )
    return made


def score(answer: str | None) -> float | None:
    return None if answer is None else float(answer == "1")


def written(made: Folder, **options: Any) -> dict[str, Any]:
    with made.locked():
        write_results(made, **options)
    return json.loads((made.path / "results.json").read_text())


def test_results_are_those_of_a_few_lines_over_the_samples(tmp_path):
    made = folder(tmp_path, ANSWERS)
    (found,) = written(made)["benchmarks"]
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (tmp_path / "samples/gsm8k.jsonl").read_text().splitlines():
        groups[json.loads(line)["problem"]].append(json.loads(line))
    for k in (1, 2, 4):
        subsets = {name: list(combinations(group, k)) for name, group in groups.items()}
        passed = [fmean(any(s["score"] == 1 for s in some) for some in sets) for sets in subsets.values()]
        voted = [fmean(map(won, sets)) for sets in subsets.values()]
        assert found["pass_at"][str(k)]["value"] == pytest.approx(fmean(passed), abs=1e-12)
        assert found["maj_at"][str(k)]["value"] == pytest.approx(fmean(voted), abs=1e-12)
        assert found["pass_at"][str(k)]["low"] < fmean(passed) < found["pass_at"][str(k)]["high"]
    assert (found["problems"], found["samples"], found["unjudged"]) == (5, 20, 5)
    assert (found["truncated"], found["mean_tokens"]) == (0.25, 15)


def won(some: tuple[dict[str, Any], ...]) -> float:
    """Whether the vote is for the right answer; a tie by its share."""
    votes = Counter(s["answer"] for s in some if s["answer"] is not None)
    leaders = [answer for answer, number in votes.items() if number == max(votes.values())]
    return fmean(answer == "1" for answer in leaders) if leaders else 0.0


def test_the_page_has_the_figures(tmp_path):
    written(folder(tmp_path, ANSWERS))
    page = (tmp_path / "results.md").read_text()
    assert page.startswith(
        "# some/model\n\n4 completions per problem at temperature 0.6 and top-p 0.95, at most 4,096"
    )
    row = next(line for line in page.splitlines() if line.startswith("| gsm8k"))
    assert "| 45.0 [" in row
    assert [cell.strip().partition(" ")[0] for cell in row.split("|")[1:-1]] == [
        "gsm8k", "5", "45.0", "80.0", "60.0", "25.0", "5", "15"
    ]  # fmt: skip


def test_programs_do_not_vote_and_have_no_column_for_it(tmp_path):
    written(folder(tmp_path, ANSWERS, "humaneval"))
    heading = next(
        line for line in (tmp_path / "results.md").read_text().splitlines() if "pass@1" in line and "|" in line
    )
    assert [cell.strip() for cell in heading.strip("| ").split("|")][2:5] == ["pass@1", "pass@4", "cut off"]


def test_the_page_says_if_only_some_problems_were_asked(tmp_path):
    written(folder(tmp_path, ANSWERS, limit=5))
    assert "Only the first 5 problems of each benchmark." in (tmp_path / "results.md").read_text()


def test_a_base_run_is_compared_on_the_problems_of_both(tmp_path):
    base = folder(tmp_path / "base", {"a": ["1"] * 4, "b": ["2"] * 4, "z": ["1"] * 4}, problems=9)
    made = folder(tmp_path / "mine", ANSWERS)
    gain = written(made, base=base)["benchmarks"][0]["gain"]
    assert (gain["problems"], gain["base"], gain["value"]) == (2, 0.5, 0.375)
    assert gain["difference"]["value"] == -0.125
    assert gain["relative"]["value"] == -0.25
    assert "| gsm8k | 2 | 50.0 | 37.5 |" in (tmp_path / "mine/results.md").read_text()


def test_a_picture_shows_the_figures_and_the_page_shows_the_picture(tmp_path):
    base = folder(tmp_path / "base", ANSWERS)
    made = folder(tmp_path / "made", ANSWERS)
    written(made, base=base)
    width, height = struct.unpack(">II", (made.path / "results.png").read_bytes()[16:24])
    assert (width, height) == (1050, 228)
    assert "](results.png)" in (made.path / "results.md").read_text()


def test_without_matplotlib_there_is_no_picture(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    written(folder(tmp_path, ANSWERS))
    assert not (tmp_path / "results.png").exists()
    assert "results.png" not in (tmp_path / "results.md").read_text()


def test_a_base_run_with_other_settings_is_compared_with_a_note(tmp_path):
    base = folder(tmp_path / "base", ANSWERS, temperature=1.0, model="base/model")
    (note,) = written(folder(tmp_path / "mine", ANSWERS), base=base)["notes"]
    assert note == "the base run differs in temperature: 1.0 there, 0.6 here"


def test_a_base_run_on_other_problems_is_refused(tmp_path):
    base = folder(tmp_path / "base", ANSWERS, digest="other")
    with pytest.raises(ConfigError, match=r"the problems of gsm8k in .* are not those of"):
        written(folder(tmp_path / "mine", ANSWERS), base=base)


def test_missing_completions_are_told(tmp_path):
    found = written(folder(tmp_path, ANSWERS, problems=6))
    assert found["notes"] == ["gsm8k: only 20 of 24 completions are there"]


def test_what_another_harness_judges_is_written_in_its_form_and_has_no_figures(tmp_path):
    found = written(folder(tmp_path, {"BigCodeBench/0": ["x = 1", "y"]}, "bigcodebench", export="bigcodebench"))
    assert found["benchmarks"] == found["averages"] == []
    lines = [json.loads(line) for line in (tmp_path / "bigcodebench.jsonl").read_text().splitlines()]
    assert lines == [{"task_id": "BigCodeBench/0", "solution": text} for text in ("x = 1\n", "y\n")]
    assert any(f"--samples {tmp_path / 'bigcodebench.jsonl'}" in note for note in found["notes"])


def test_results_are_the_same_each_time(tmp_path):
    made = folder(tmp_path, ANSWERS)
    assert written(made) == written(made)
    assert asdict(made.samples("gsm8k")[0])["completion"] == "```\n1\n```"

"""Which training problems are benchmark problems, and the command that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from datasets import Dataset
from task_files import deepmath_row, write_deepmath

from trl_mentor.cli.decontaminate import main
from trl_mentor.errors import ConfigError
from trl_mentor.tasks.decontamination import benchmark_overlaps, without_overlaps
from trl_mentor.tasks.instructions import FUNCTION
from trl_mentor.tasks.overlap import Overlap, Passage, find_overlaps

BENCHMARKS = Path(__file__).parent / "data" / "benchmarks"

ALLEY = (
    r"A cat walks along an alley of $n$ lamps. Let $\frac{p}{q}$ be the part of the lamps that it passes at least "
    r"twice before it turns back at $x \leq 3$. Compute $p+q$ for $n=1{,}000$."
)
RATIO = r"can be written as $\frac{m}{n}$, where $m$ and $n$ are relatively prime positive integers. Find $m+n$."
SHORT = "How many positive whole-number divisors does 196 have?"
SHORTEST = r"What is $7 \times 8$?"


def found(*rows: str, problem: str = ALLEY, gram_words: int = 13, min_share: float = 0.5) -> list[Overlap]:
    passages = [Passage(str(place), row) for place, row in enumerate(rows)]
    benchmarks = {"alleys": [Passage("a", "Prove that there is a prime."), Passage("b", problem)]}
    return find_overlaps(passages, benchmarks, gram_words=gram_words, min_share=min_share)


@pytest.mark.parametrize(
    "row",
    [
        ALLEY,
        f"Solve this. {ALLEY} Show your work.",
        ALLEY.replace(" ", "\n  ").upper().replace(r"\FRAC", r"\frac").replace(r"\LEQ", r"\leq"),
        ALLEY.replace("$", "").replace(".", " ;").replace("twice", "(twice),"),
        ALLEY.replace(r"\frac{p}{q}", "p/q").replace(r"\leq", "\u2264").replace("1{,}000", "1000"),
        ALLEY.replace("$n$", r"\( n \)").replace(r"\frac", r"\displaystyle\dfrac").replace("3$", r"3\,$"),
        ALLEY.replace("A cat", "[asy]\ndraw((0,0)--(1,1));\n[/asy]\nA cat"),
        ALLEY.replace("twice", r"\textbf{twice}").replace("lamps", r"\text{lamps}"),
    ],
    ids=["verbatim", "embedded", "spacing", "punctuation", "plain", "latex", "drawing", "fonts"],
)
def test_a_planted_problem_is_found_however_it_is_typed(row: str) -> None:
    (overlap,) = found("Count them.", row)
    assert (overlap.problem, overlap.row, overlap.share) == ("b", "1", 1.0)


def test_a_problem_with_one_word_changed_is_found_and_the_shared_text_shown() -> None:
    (overlap,) = found(ALLEY.replace("1{,}000", "7"))
    assert 0.9 < overlap.share < 1
    assert overlap.shared.startswith("a cat walks along an alley of n lamps let p q be the part")


def test_problems_that_share_only_a_phrase_do_not_overlap() -> None:
    rows = [f"For a bag of {count} marbles of {count} colours the chance of a pair {RATIO}" for count in range(12)]
    problem = f"The chance that a knight comes home in nine moves {RATIO}"
    assert found(*rows, problem=problem) == []
    assert [overlap.row for overlap in found(*rows, problem, problem=problem)] == ["12"]
    assert found("Find the sum of all positive integers n such that n divides 12.", problem=ALLEY) == []


def test_a_problem_that_is_in_the_training_set_many_times_is_no_phrase() -> None:
    assert len(found(*[ALLEY] * 20)) == 20


def test_a_share_of_zero_reports_every_shared_ngram() -> None:
    row = "Yesterday a cat walks along an alley of n lamps. Let p/q be its name. What was it called before it moved?"
    assert found(row) == []
    assert [overlap.problem for overlap in found(row, min_share=0)] == ["b"]


def test_a_short_problem_is_found_as_a_whole_and_the_shortest_only_alone() -> None:
    assert len(found(f"Euler asks: {SHORT.lower()} He waits.", problem=SHORT)) == 1
    assert found("How many positive whole-number divisors does 195 have?", problem=SHORT) == []
    assert len(found("what is 7*8", problem=SHORTEST)) == 1
    assert found("Tell me: what is 7*8, my dear?", problem=SHORTEST) == []


def test_chinese_problems_are_compared_character_by_character() -> None:
    problem = "已知集合 $A=\\{1,2,3\\}$, 则集合 $A$ 的子集共有多少个"
    assert len(found(f"5 分 {problem}?", problem=problem)) == 1


def test_texts_without_words_overlap_with_nothing() -> None:
    assert found("", "$$ + $$", "\ud800", problem="???") == []


def test_ngrams_that_are_too_short_to_tell_problems_apart_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 8 words"):
        found(ALLEY, gram_words=3)


def test_a_huge_text_is_read_in_part_and_progress_is_told() -> None:
    done: list[int] = []
    rows = [Passage("huge", "[asy]" * 200_000 + ALLEY), Passage("copy", ALLEY)]
    overlaps = find_overlaps(rows, {"alleys": [Passage("b", ALLEY)]}, progress=done.append)
    assert [overlap.row for overlap in overlaps] == ["copy"]
    assert done == [1, 2]


@pytest.fixture
def deepmath(tmp_path: Path) -> Path:
    """A training set that holds a problem of the little GSM8K, typed anew, and one that it does not."""
    shelf = "A shelf holds 12 boxes of $105$ screws; how many screws is that?"
    return write_deepmath(tmp_path / "data", [deepmath_row(1), deepmath_row(2, question=shelf), deepmath_row(3)])


def arguments(deepmath: Path, *more: str) -> list[str]:
    names = ["gsm8k", "math500"]
    files = [f"deepmath-103k={deepmath}", *(f"{name}={BENCHMARKS / name}.jsonl" for name in names)]
    options = [word for one in files for word in ("--files", one)]
    return ["--task", "deepmath-103k", "--split", "full", "--benchmarks", ",".join(names), *options, *more]


def test_the_command_reports_each_benchmark_and_every_pair(
    deepmath: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "reports" / "overlap.json"
    assert main(arguments(deepmath, "-o", str(report))) == 0
    shown = capsys.readouterr().out
    assert "deepmath-103k full: 3 problems" in shown
    assert "gsm8k 0" in shown
    found = json.loads(report.read_text())
    assert found["benchmarks"] == {
        "gsm8k": {"problems": 2, "overlapping": 1, "rows": 1},
        "math500": {"problems": 2, "overlapping": 0, "rows": 0},
    }
    (pair,) = found["pairs"]
    assert found["overlapping_rows"] == [pair["row"]]
    assert (pair["benchmark"], pair["problem"], pair["share"]) == ("gsm8k", "0", 1.0)
    assert pair["shared"] == "a shelf holds 12 boxes of 105 screws how many screws is that"


def test_what_was_found_is_shown_though_the_report_cannot_be_written(
    deepmath: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        main(arguments(deepmath, "-o", str(tmp_path / "file" / "overlap.json")))
    assert "gsm8k 0" in capsys.readouterr().out


def test_the_command_fails_on_request_and_only_if_something_overlaps(deepmath: Path, tmp_path: Path) -> None:
    assert main(arguments(deepmath, "--fail")) == 1
    clean = write_deepmath(tmp_path / "clean", [deepmath_row(1), deepmath_row(2)])
    assert main(arguments(clean, "--fail")) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "report.html"], "ends in .json"),
        (["--files", "aime24=there"], "neither the task nor a benchmark"),
        (["--benchmarks", ","], "--benchmarks names none"),
        (["--min-share", "2"], "from 0 to 1"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(deepmath: Path, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        main(arguments(deepmath, *words))


def test_an_unknown_benchmark_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="no benchmark 'gsm9k'; choose from aime24"):
        main(["--task", "deepmath-103k", "--benchmarks", "gsm9k"])


def test_an_unknown_task_is_refused_before_a_benchmark_is_fetched() -> None:
    with pytest.raises(ConfigError, match="unknown task 'deepmath'; expected one of"):
        main(["--task", "deepmath", "--benchmarks", "aime24"])


def test_any_data_set_with_prompts_can_be_freed_of_benchmark_problems() -> None:
    shelf = "A shelf holds 12 boxes of 105 screws. How many screws is that?"
    system = {"role": "system", "content": "Reason."}
    rows = Dataset.from_dict(
        {"prompt": [[system, {"role": "user", "content": text}] for text in ("Count to 3.", shelf, "Count to 4.")]}
    )
    overlaps = benchmark_overlaps(rows, ["gsm8k"], files={"gsm8k": BENCHMARKS / "gsm8k.jsonl"})
    assert [(overlap.row, overlap.problem) for overlap in overlaps] == [("1", "0")]
    assert [prompt[-1]["content"] for prompt in without_overlaps(rows, overlaps)["prompt"]] == [
        "Count to 3.",
        "Count to 4.",
    ]
    with pytest.raises(ConfigError, match="no column prompt"):
        benchmark_overlaps(rows.rename_column("prompt", "text"), [])


def test_the_words_about_the_form_of_an_answer_are_not_compared() -> None:
    rows = Dataset.from_dict({"prompt": [f"Print a star.\n\n{FUNCTION}"]})
    files = {"humaneval": BENCHMARKS / "humaneval.jsonl"}
    assert benchmark_overlaps(rows, ["humaneval"], files=files, min_share=0) == []

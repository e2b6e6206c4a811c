"""LiveCodeBench: its tests in the column that rewards read, its splits, and rows that are not as they should be."""

from __future__ import annotations

import base64
import json
import logging
import os
import pickle
import random
import zlib
from pathlib import Path

import pytest
from datasets import Dataset
from task_files import call_case, call_row, livecodebench_row, packed, stdin_case, write_livecodebench

from trl_mentor import load_task
from trl_mentor.errors import ConfigError
from trl_mentor.programs.store import TestStore
from trl_mentor.programs.tests import Case, Style, parse_tests
from trl_mentor.tasks import TASKS
from trl_mentor.tasks.lcb_tests import INLINE_CHARS, read_tests
from trl_mentor.tasks.livecodebench import read


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "store"
    monkeypatch.setenv("TRL_MENTOR_CACHE", str(folder))
    return folder


def load(folder: Path, rows: list[dict], split: str = "full", **options):
    return load_task("livecodebench", split, files=write_livecodebench(folder, rows), **options)


def large_cases(seed: int = 0) -> list[dict[str, str]]:
    """Two tests that do not fit into a row, even packed."""
    return [stdin_case(random.Random(seed + i).randbytes(20_000).hex(), str(i)) for i in range(2)]


def test_a_program_gets_the_public_and_the_private_tests_in_order():
    tests = parse_tests(read_tests(livecodebench_row(3)))
    assert tests.style is Style.STDIN
    assert tests.cases == (Case("1 2\n", "6\n", hidden=False), Case("5 6\n", "14\n", hidden=True))


def test_a_call_has_one_argument_on_each_line_and_its_name_is_in_the_metadata():
    tests = parse_tests(read_tests(call_row(0)))
    assert (tests.style, tests.function) == (Style.CALL, "pairs")
    assert tests.cases == (
        Case(([1, 2], "a"), 3, hidden=False),
        Case(([], 'b"\n'), None, hidden=True),
        Case(([7], ""), {"x": [1.5, True]}, hidden=True),
    )


def test_private_tests_are_read_as_plain_json_too():
    cases = [stdin_case("", ""), stdin_case("é\r\n", "\u4e2d")]
    plain = read_tests(livecodebench_row(0, private_test_cases=json.dumps(cases)))
    assert plain == read_tests(livecodebench_row(0, private_test_cases=packed(cases)))


def test_large_tests_lie_in_the_store_and_the_row_names_them(store):
    cases = large_cases()
    column = read_tests(livecodebench_row(0, private_test_cases=packed(cases)))
    assert len(column) < 100
    kept = TestStore().get(parse_tests(column).sha256)
    assert [case.input for case in kept.cases] == ["1 2\n", *(case["input"] for case in cases)]
    assert len(read_tests(livecodebench_row(0))) <= INLINE_CHARS


def test_small_tests_that_unpack_to_large_ones_lie_in_the_store():
    cases = [stdin_case("1" * 100_000, "1")]
    assert len(packed(cases)) < 1000
    assert parse_tests(read_tests(livecodebench_row(0, private_test_cases=packed(cases)))).style is Style.STORED


def test_what_was_unpacked_once_is_noted_and_done_again_only_if_it_is_lost(store):
    row = livecodebench_row(0, private_test_cases=packed(large_cases()))
    column = read_tests(row)
    (note,) = store.glob("unpacked/*.json")
    written = note.stat()
    assert read_tests(row) == column
    assert note.stat() == written
    (kept,) = (path for path in store.rglob("*.gz"))
    kept.unlink()
    assert read_tests(row) == column
    assert kept.exists()
    note.write_text("{")
    assert read_tests(row) == column


def test_a_store_that_cannot_be_written_is_a_clear_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRL_MENTOR_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"cannot be kept: .*set TRL_MENTOR_CACHE to a folder that can be written"):
        load(tmp_path / "data", [livecodebench_row(0, private_test_cases=packed(large_cases()))])


def test_other_tests_have_another_note(store):
    columns = {read_tests(livecodebench_row(0, private_test_cases=packed(large_cases(seed)))) for seed in (0, 5)}
    assert len(columns) == 2


class Touch:
    def __reduce__(self):
        return os.system, ("touch trap",)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"private_test_cases": "eJwL"}, "ends too early"),
        ({"private_test_cases": "[{"}, "private_test_cases is no JSON"),
        ({"private_test_cases": "[" * 100_000}, "private_test_cases is no JSON"),
        ({"private_test_cases": packed({"input": "1"})}, "private_test_cases is no list of tests"),
        ({"private_test_cases": packed([1])}, "private_test_cases is no list of tests"),
        (
            {"private_test_cases": packed([{"input": 1, "output": "", "testtype": "stdin"}])},
            "an input of the type int",
        ),
        ({"private_test_cases": packed([stdin_case("1", "2") | {"testtype": "file"}])}, "of the kinds"),
        ({"private_test_cases": packed([call_case([1], 2)])}, "of the kinds"),
        ({"private_test_cases": None}, "private_test_cases is NoneType"),
        ({"public_test_cases": "3"}, "public_test_cases is no list"),
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "of the kinds"),
        ({"difficulty": "brutal"}, "difficulty is 'brutal'"),
        ({"question_content": " "}, "question_content is empty"),
        ({"question_id": None}, "question_id is NoneType"),
    ],
)
def test_a_row_that_is_not_as_it_should_be_is_refused_with_its_reason(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(livecodebench_row(0, **changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"metadata": "{}"}, "metadata names no function"),
        ({"metadata": "[]"}, "metadata names no function"),
        ({"metadata": json.dumps({"func_name": "os.system('x')"})}, "metadata names no function"),
        (
            {"public_test_cases": json.dumps([call_case([1], 2) | {"input": "x = 1"}])},
            "an argument of a test is no JSON",
        ),
        ({"public_test_cases": json.dumps([call_case([1], 2) | {"output": ""}])}, "the output of a test is no JSON"),
    ],
)
def test_a_call_that_is_not_as_it_should_be_is_refused_with_its_reason(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(call_row(0, **changes))


def test_a_hostile_row_is_left_out_counted_and_does_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    hostile = base64.b64encode(zlib.compress(pickle.dumps(Touch()))).decode()
    rows = [livecodebench_row(0), livecodebench_row(1, private_test_cases=hostile), call_row(2)]
    with caplog.at_level(logging.WARNING):
        made = load(tmp_path / "data", rows)
    assert sorted(made["id"]) == ["3002", "abc000_a"]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("trl-mentor: 1 rows of livecodebench full cannot be read (1: refused a pickle")
    assert not Path("trap").exists()


def test_tests_that_are_nested_too_deeply_spoil_no_other_row(tmp_path):
    rows = [livecodebench_row(0)]
    for depth in range(900, 1000):  # read by the parser and not written by the encoder, or neither
        case = call_case([[7], ""], 1) | {"output": "[" * depth + "]" * depth}
        rows.append(call_row(0, question_id=f"deep{depth}", private_test_cases=json.dumps([case])))
    assert "abc000_a" in load(tmp_path / "data", rows)["id"][:]


def test_a_prompt_has_the_question_the_starter_code_and_the_form_of_the_answer(tmp_path):
    made = load(tmp_path / "data", [livecodebench_row(0), call_row(1)])
    prompts = {row["id"]: row["prompt"] for row in made}
    assert all(len(messages) == 1 and messages[0]["role"] == "user" for messages in prompts.values())
    plain, starter = prompts["abc000_a"][0]["content"], prompts["3001"][0]["content"]
    assert plain.startswith("Read two numbers")
    assert "class Solution" not in plain
    assert "```python\nclass Solution:\n    def pairs(" in starter
    assert plain.endswith(TASKS["livecodebench"].instruction)
    assert starter.endswith(TASKS["livecodebench"].instruction)
    assert "```python" in TASKS["livecodebench"].instruction


def test_hidden_tests_are_not_in_the_prompt(tmp_path):
    (row,) = load(tmp_path / "data", [livecodebench_row(0)])
    assert "5 6" in row["tests"]
    assert "5 6" not in row["prompt"][0]["content"]


def test_columns_are_those_of_code_and_difficulties_are_numbers(tmp_path):
    made = load(tmp_path / "data", [livecodebench_row(i) for i in range(3)])
    assert made.column_names == ["id", "prompt", "tests", "topic", "difficulty"]
    assert {row["id"]: row["difficulty"] for row in made} == {"abc000_a": 1.0, "abc001_a": 2.0, "abc002_a": 3.0}
    assert set(made["topic"]) == {"atcoder"}


class Rows:
    """The columns that a split looks at, in any order."""

    def __init__(self, problems: int) -> None:
        rows = [livecodebench_row(i % 300) for i in range(problems)]
        self.table = Dataset.from_dict(
            {
                "question_content": [f"{i}: {row['question_content']}" for i, row in enumerate(rows)],
                "question_id": [f"p{i}" for i in range(problems)],
                "contest_date": [row["contest_date"] for row in rows],
            }
        )

    def split(self, name: str) -> list[str]:
        return list(TASKS["livecodebench"].splits[name].select(self.table)["question_id"])


@pytest.mark.parametrize(("problems", "held_out"), [(1055, 176), (60, 10), (6, 1), (3, 0)])
def test_one_problem_in_six_is_held_out_and_none_is_on_both_sides(problems, held_out):
    rows = Rows(problems)
    for by_date in ("", "_by_date"):
        train, validation = (rows.split(f"{name}{by_date}") for name in ("train", "validation"))
        assert (len(train), len(validation)) == (problems - held_out, held_out)
        assert sorted(train + validation) == sorted(rows.table["question_id"])


def test_a_split_is_the_same_whatever_the_order_of_the_rows():
    rows = Rows(60)
    before = {name: rows.split(name) for name in TASKS["livecodebench"].splits if name != "full"}
    rows.table = rows.table.shuffle(seed=1)
    assert {name: rows.split(name) for name in before} == before


def test_by_date_the_newest_contests_are_held_out():
    rows = Rows(60)
    dates = dict(zip(rows.table["question_id"], rows.table["contest_date"], strict=True))
    newest_seen = max(dates[name] for name in rows.split("train_by_date"))
    assert newest_seen < min(dates[name] for name in rows.split("validation_by_date"))
    assert set(rows.split("validation")) != set(rows.split("validation_by_date"))


def test_a_problem_that_is_there_twice_is_on_one_side_only(tmp_path):
    rows = [livecodebench_row(i) for i in range(12)]
    again = [
        row | {"question_id": f"again{i}", "question_content": f"  {row['question_content'].upper()}\n"}
        for i, row in enumerate(rows)
    ]
    for suffix in ("", "_by_date"):
        sides = [
            set(load(tmp_path / "data", rows + again, f"{name}{suffix}")["id"]) for name in ("train", "validation")
        ]
        assert all({f"again{int(i[3:6])}" for i in side if i[:3] == "abc"} <= side for side in sides)
        assert len(sides[0]) + len(sides[1]) == 24


def test_a_release_without_some_of_its_files_is_warned_about(tmp_path, caplog):
    folder = write_livecodebench(tmp_path / "data", [livecodebench_row(0)])
    (folder / "test4.jsonl").unlink()
    assert len(load_task("livecodebench", "full", files=folder)) == 1
    assert "lacks test4.jsonl" in caplog.text


def test_files_of_another_data_set_are_refused_with_their_columns(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    with pytest.raises(ConfigError, match=r"not those of livecodebench.*question, answer"):
        load_task("livecodebench", files=tmp_path / "other.jsonl")

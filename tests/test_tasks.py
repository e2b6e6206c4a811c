"""`load_task`: the same rows every time, from local files or the Hub's cache, and clear words for what is wrong."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import logging
import shutil
from pathlib import Path

import pytest
from datasets import Dataset
from task_files import deepmath_row, write_deepmath

from trl_mentor import load_task
from trl_mentor.errors import ConfigError
from trl_mentor.tasks import TASKS
from trl_mentor.tasks.deepmath import TRAIN_PROBLEMS, VALIDATION_PROBLEMS, select
from trl_mentor.tasks.splits import problem_key

ROOT = Path(__file__).parents[1]
DEEPMATH = TASKS["deepmath-103k"]
TRAIN_ANSWERS = ["0", "12", "4", "6", "2", "10", "20", "22"]
VALIDATION_ANSWERS = ["8", "18", "14", "16"]
"""Of the first twelve rows here, worked out apart from the package."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_deepmath(tmp_path_factory.mktemp("deepmath"), (deepmath_row(i) for i in range(60)))


def load(folder: Path, split: str = "full", **options) -> Dataset:
    return load_task("deepmath-103k", split, files=folder, **options)


# What a row is


def test_a_row_has_the_columns_that_trl_rewards_and_mentor_read(folder):
    made = load(folder)
    assert made.column_names == ["id", "prompt", "answer", "topic", "difficulty"]
    row = made[7]
    (message,) = row["prompt"]
    assert message == {"role": "user", "content": f"What is 7 + 7?\n\n{DEEPMATH.instruction}"}
    assert (row["answer"], row["topic"], row["difficulty"]) == ("14", "Mathematics -> Algebra -> Prealgebra", 8.0)
    assert "\\boxed{}" in DEEPMATH.instruction


def test_ids_are_those_of_the_problems_and_not_of_their_places(folder, tmp_path):
    other = write_deepmath(tmp_path, (deepmath_row(i) for i in reversed(range(60))))
    assert load(folder)["id"] == list(reversed(load(other)["id"]))
    assert len(set(load(folder)["id"])) == 60


# Splits


def test_train_and_validation_share_no_problem_and_do_not_depend_on_the_order_of_the_rows(folder, tmp_path):
    other = write_deepmath(tmp_path, (deepmath_row(i) for i in reversed(range(60))))
    train, validation = load(folder, "train"), load(folder, "validation")
    assert set(train["id"]).isdisjoint(validation["id"])
    assert sorted([*train["id"], *validation["id"]]) == sorted(load(folder)["id"])
    assert load(other, "train").to_list() == train.to_list()
    assert load(other, "validation").to_list() == validation.to_list()


def test_the_splits_are_those_of_every_other_machine_and_version():
    assert problem_key("What is  1+1?\n") == problem_key("what IS 1+1?")
    assert problem_key("What is 1+1?") == hashlib.sha256(b"what is 1+1?").hexdigest()
    rows = Dataset.from_list([deepmath_row(i) for i in range(12)])
    assert select(rows, validation=True)["final_answer"] == VALIDATION_ANSWERS
    assert select(rows, validation=False)["final_answer"] == TRAIN_ANSWERS


def test_of_the_whole_data_set_ten_thousand_problems_train_and_2500_validate():
    rows = Dataset.from_dict(
        {"question": [f"What is {i}?" for i in range(16_000)], "final_answer": [str(i) for i in range(16_000)]}
    )
    train, validation = (set(select(rows, validation=side)["question"]) for side in (False, True))
    assert (len(train), len(validation)) == (TRAIN_PROBLEMS, VALIDATION_PROBLEMS) == (10_000, 2_500)
    assert train.isdisjoint(validation)
    fewer = rows.select(range(0, 16_000, 3))
    for part, whole, other in ((False, train, validation), (True, validation, train)):
        there = set(select(fewer, validation=part)["question"])
        assert there >= whole & set(fewer["question"])
        assert there.isdisjoint(other)


def test_a_problem_that_is_there_twice_is_taken_once_and_always_the_same_row(tmp_path):
    twins = [deepmath_row(1, question="  WHAT is\n1 + 1?", final_answer="1"), deepmath_row(1)]
    answers = []
    for number, rows in enumerate((twins, twins[::-1])):
        folder = write_deepmath(tmp_path / str(number), [*rows, *(deepmath_row(i) for i in range(2, 40))])
        split = load(folder, "train"), load(folder, "validation")
        assert sum(map(len, split)) == 39
        answers.append(sorted(answer for part in split for answer in part["answer"] if answer in ("1", "2")))
    assert answers == [["1"], ["1"]]


def test_a_split_that_gets_none_of_a_few_rows_says_so(tmp_path):
    rows = [deepmath_row(i) for i in range(12)]
    kept = [row for row in rows if row["final_answer"] in TRAIN_ANSWERS]
    with pytest.raises(ConfigError, match="the 8 rows that are there fall into other splits"):
        load(write_deepmath(tmp_path, kept), "validation")


# Filters


def test_filters_take_both_bounds_in_and_leave_the_order(folder):
    kept = load(folder, min_difficulty=3, max_difficulty=5)
    assert set(kept["difficulty"]) == {3.0, 4.0, 5.0}
    assert kept["id"] == [row["id"] for row in load(folder) if 3 <= row["difficulty"] <= 5]
    longest = max(len(row["prompt"][0]["content"]) for row in load(folder))
    assert len(load(folder, max_prompt_chars=longest)) == 60
    assert load(folder, max_prompt_chars=longest - 1)["answer"] == [str(2 * i) for i in range(10)]


def test_a_filter_moves_no_problem_to_the_other_split(folder):
    easy = {split: set(load(folder, split, max_difficulty=4)["id"]) for split in ("train", "validation")}
    assert all(easy[split] < set(load(folder, split)["id"]) for split in easy)


def test_a_problem_without_a_difficulty_passes_no_bound_on_it(tmp_path):
    folder = write_deepmath(tmp_path, [deepmath_row(0), deepmath_row(1, difficulty=None)])
    assert len(load(folder)) == 2
    assert load(folder, min_difficulty=0)["answer"] == ["0"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"min_difficulty": 20}, "min_difficulty=20 leaves none of the 60 problems .* difficulties from 1 to 9"),
        ({"max_prompt_chars": 10}, "max_prompt_chars=10 leaves none"),
    ],
)
def test_filters_that_leave_nothing_are_a_wrong_setting(folder, options, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load(folder, **options)


def test_a_limit_stops_after_so_many_that_are_kept(folder):
    assert load(folder, min_difficulty=5, limit=3)["difficulty"] == [5.0, 6.0, 7.0]


# Files


def as_csv(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def as_gzip(path: Path, rows: list[dict]) -> None:
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("rows.jsonl", lambda path, rows: path.write_text("\n".join(map(json.dumps, rows)))),
        ("rows.json", lambda path, rows: path.write_text(json.dumps(rows))),
        ("rows.jsonl.gz", as_gzip),
        ("rows.parquet", lambda path, rows: Dataset.from_list(rows).to_parquet(path)),
        ("rows.csv", as_csv),
    ],
)
def test_one_file_of_any_format_does_as_well(folder, tmp_path, name, write):
    write(tmp_path / name, [deepmath_row(i, final_answer=rf"\frac{{{i}}}{{7}}") for i in range(60)])
    made = load(tmp_path / name)
    assert made["prompt"] == load(folder)["prompt"]
    assert made[3]["answer"] == r"\frac{3}{7}"
    digest = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert made.info.description == f"deepmath-103k full: 60 problems of local files, sha256 {digest}"


def test_files_may_lie_flat_and_what_else_is_there_is_not_read(folder, tmp_path):
    for path in (folder / "data").iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "notes.jsonl").write_text("{")
    flat = load(tmp_path)
    assert flat.to_list() == load(folder).to_list()
    assert flat.info.description == load(folder).info.description


def test_other_content_has_another_digest(folder, tmp_path):
    other = write_deepmath(tmp_path, (deepmath_row(i, topic="Other") for i in range(60)))
    assert load(other).info.description != load(folder).info.description


def test_the_hubs_cache_is_read_without_a_network_at_the_pinned_commit(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    source = DEEPMATH.splits["train"].source
    cached = tmp_path / "datasets--zwhe99--DeepMath-103K" / "snapshots" / str(source.revision)
    shutil.copytree(folder, cached)
    made = load_task("deepmath-103k", "full")
    assert made.to_list() == load(folder).to_list()
    assert made.info.description == f"deepmath-103k full: 60 problems of {source.repo}, revision {source.revision}"


def test_without_network_and_cache_the_error_says_how_to_fetch_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        load_task("deepmath-103k")
    for words in (
        "hf download --repo-type dataset zwhe99/DeepMath-103K --revision 5cf055d",
        "--include 'data/train-*.parquet'",
        "task_files",
        "--files NAME=DIRECTORY",
    ):
        assert words in str(caught.value)
    with pytest.raises(ConfigError, match=r"zwhe99/DeepMath-103K at v0 cannot be read.*--revision v0"):
        load_task("deepmath-103k", revision="v0")


# What is wrong


def test_an_unknown_name_or_split_lists_what_there_is(folder):
    with pytest.raises(ConfigError, match=r"unknown task 'deepmath'; expected one of .*deepmath-103k.*livecodebench"):
        load_task("deepmath")
    with pytest.raises(ConfigError, match="has no split 'test'; it has full, train, validation"):
        load(folder, "test")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"question": "1?"', "cannot be read: .*JSON"),
        (
            '{"problem": "1?", "answer": "1"}',
            r"all 1 rows of .* cannot be read \(1: question is NoneType",
        ),
        ("", "is empty"),
        (b'{"question": "\xe9?", "final_answer": "1"}', r"holds text that is not UTF-8: .* 0xe9"),
    ],
)
def test_a_file_of_another_kind_is_a_clear_error(tmp_path, content, complaint):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=complaint):
        load(file)


def test_a_gzipped_file_that_was_cut_off_is_a_clear_error(tmp_path):
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(deepmath_row(0)).encode())[:-20])
    with pytest.raises(ConfigError, match=r"rows\.jsonl\.gz cannot be read: .*is every file complete"):
        load(file)


def test_a_folder_whose_name_is_a_pattern_is_that_folder_alone(tmp_path):
    for number, name in enumerate(["ab", "*", "[a]b"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text(json.dumps(deepmath_row(number)))
    expected = [deepmath_row(number)["final_answer"] for number in (1, 2)]
    assert [load(tmp_path / name / "rows.jsonl")["answer"] for name in ("*", "[a]b")] == [[one] for one in expected]


def test_places_without_the_files_are_clear_errors(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"there is no .*nowhere; fetch it .*hf download"):
        load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"holds none of data/train-\*\.parquet \(a file of another name"):
        load(tmp_path)
    (tmp_path / "rows.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"rows\.txt; expected files of one of the formats"):
        load(tmp_path / "rows.txt")
    with pytest.raises(ConfigError, match="both files and revision"):
        load(folder, revision="v1")


@pytest.mark.parametrize("files", [None, "nowhere"])
def test_data_that_is_not_on_the_hub_is_fetched_from_where_it_is(files):
    with pytest.raises(ConfigError, match=r"Math_I_MCQs\.json .* of https://github\.com/.*GAOKAO-Bench at commit"):
        load_task("gaokao-bench", "test", files=files)


def test_a_field_that_need_not_be_there_may_be_blank(tmp_path):
    folder = write_deepmath(tmp_path, [deepmath_row(0, topic=" \n"), deepmath_row(1)])
    assert load(folder)["topic"][:] == [None, "Mathematics -> Algebra -> Prealgebra"]


def test_shards_that_were_not_fetched_are_told_of(folder, tmp_path, caplog):
    shutil.copytree(folder, tmp_path / "part")
    (tmp_path / "part" / "data" / "train-00001-of-00002.parquet").unlink()
    assert len(load(tmp_path / "part")) == 30
    assert "lacks 1 of the 2 files data/train-*.parquet" in caplog.text


def test_rows_that_cannot_be_read_are_left_out_with_one_warning_that_counts_them(tmp_path, caplog):
    rows = [deepmath_row(i) for i in range(10)]
    rows[2:4] = [deepmath_row(2, final_answer=None), deepmath_row(3, final_answer="  ")]
    rows[7] = deepmath_row(7, question=None)
    with caplog.at_level(logging.WARNING):
        made = load(write_deepmath(tmp_path, rows))
    assert made["answer"] == ["0", "2", "8", "10", "12", "16", "18"]
    (record,) = caplog.records
    message = record.getMessage()
    assert message.startswith("trl-mentor: 3 rows of deepmath-103k full cannot be read")
    for reason in ("1: final_answer is NoneType", "1: final_answer is empty", "1: question is NoneType", "7 are read"):
        assert reason in message


# The records


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_task_pins_a_commit_or_says_that_it_could_not(task):
    for source in {split.source for split in task.splits.values()}:
        assert source.revision is None or len(source.revision) == 40
        assert source.revision is not None or "commit" in task.unchecked or "revision" in task.unchecked
    assert task.instruction.strip()
    assert task.citation.strip()


def table() -> str:
    """All records, as docs/tasks.md shows them."""
    rows = ["| task | data | splits | commit | what it is | not checked |", "|---|---|---|---|---|---|"]
    for task in TASKS.values():
        sources = list(dict.fromkeys(split.source for split in task.splits.values()))
        data = ", ".join(f"`{source.repo}`" + f" {source.config or ''}".rstrip() for source in sources)
        commits = ", ".join(f"`{source.revision[:7]}`" if source.revision else "none" for source in sources)
        splits = ", ".join(f"`{name}`" for name in task.splits)
        rows.append(f"| `{task.name}` | {data} | {splits} | {commits} | {task.citation} | {task.unchecked} |")
    return "\n".join(rows) + "\n"


def test_the_table_of_the_page_is_that_of_the_records():
    assert table() in (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")

"""Material written before a training: asked of a real server, checked, kept through kills, and billed."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import tiny
from datasets import Dataset, load_dataset

from trl_mentor import read_journal
from trl_mentor.cli.main import main
from trl_mentor.cli.prepare_material import MAX_ENTRY_CHARS, parse_ladder
from trl_mentor.errors import ReplyError
from trl_mentor.records import RerollOutcome
from trl_mentor.templating import read_blocks

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import stub_server

HINT = "Add the ones before the tens, and do not forget what is carried."
LEAK = "Add the ones first; the answer is 42."
SOLUTION = "The ones make 12, so I write 2 and carry 1; the tens make 4.\n\n\\boxed{42}"
LADDER = {
    "knowledge": ["Place value splits a number into tens and ones.", "Ten ones make one ten."],
    "planning": ["Treat the ones apart from the tens.", "Only then join the two."],
    "solution": ["Take the ones of both numbers together.", "If they are more than nine, carry a ten."],
}
RUNGS = [rung for first, second in LADDER.values() for rung in (first, f"{first} {second}")]
GOOD = {"hint": HINT, "hints": json.dumps(LADDER), "demonstration": SOLUTION}
EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "own_domain"
PRICES = '{"prompt": 2, "completion": 10}'
RUN = "import sys; from trl_mentor.cli.main import main; sys.exit(main(sys.argv[1:]))"


class Script:
    """Answers by what is asked for and by the number in the question; `replies` has those that are not good."""

    def __init__(self) -> None:
        self.replies: dict[tuple[str, int], list[Any]] = defaultdict(list)
        self.asked: list[tuple[str, int]] = []
        self.prompts: list[str] = []
        self.latency = 0.0
        self.url = ""

    async def play(self, asked: stub_server.Asked, writer: asyncio.StreamWriter, _: stub_server.Stub) -> bool:
        prompt = asked.body["messages"][-1]["content"]
        kind = "hints" if '"knowledge"' in prompt else "hint" if "Write a hint" in prompt else "demonstration"
        place = kind, int(re.findall(r"\((\d+)\)", read_blocks(prompt, "question")[0])[0])
        self.asked.append(place)
        self.prompts.append(prompt)
        await asyncio.sleep(self.latency)
        reply = self.replies[place].pop(0) if self.replies[place] else GOOD[kind]
        if isinstance(reply, int):
            await stub_server.send(writer, b'{"error": "no"}', status=reply)
        else:
            cut = isinstance(reply, tuple)
            text = reply[0] if cut else reply
            await stub_server.send(writer, stub_server.completion(text, finish_reason="length" if cut else "stop"))
        return True

    def count(self, kind: str) -> Counter[int]:
        return Counter(number for each, number in self.asked if each == kind)


@pytest.fixture
def script():
    made = Script()
    with stub_server.threaded(made.play) as stub:
        made.url = stub.url
        yield made


def rows(count: int = 5) -> list[dict[str, Any]]:
    return [{"prompt": f"What is 17 + 25? ({number})", "answer": "42", "level": number} for number in range(count)]


def write(path: Path, given: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


def words(script: Script, folder: Path, columns: str, *more: str, data: Path | None = None) -> list[str]:
    source = write(folder / "in.jsonl", rows()) if data is None else data
    output = ["-o", str(folder / "out" / "train.jsonl"), "--columns", columns]
    mentor = ["--mentor_model", "m", "--mentor_base_url", script.url, "--mentor_prices", PRICES]
    return ["prepare", "--data", str(source), *output, *mentor, *more]


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "train.jsonl").read_text().splitlines()]


def bill(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "train.bill").read_text())


def test_all_three_columns_join_the_rows_which_datasets_and_its_folders_load(script, tmp_path, capsys):
    assert main(words(script, tmp_path, "hint,hints,demonstration", "--reward", "math_reward")) == 0
    expected = [row | {"hint": HINT, "hints": RUNGS, "demonstration": SOLUTION} for row in rows()]
    assert read(tmp_path) == expected
    for loaded in (
        load_dataset("json", data_files=str(tmp_path / "out" / "train.jsonl"), split="train"),
        load_dataset(str(tmp_path / "out"), split="train"),
    ):
        assert loaded.to_list() == expected
    assert "5 of 5 rows" in capsys.readouterr().out


def test_the_mentor_reads_question_and_answer_and_its_solution_also_what_the_system_turn_says(script, tmp_path):
    given = [{"prompt": [{"role": "system", "content": "Answer in a box."}, {"role": "user", "content": "2? (1)"}]}]
    data = write(tmp_path / "chat.jsonl", [given[0] | {"answer": "</answer> 42"}])
    assert main(words(script, tmp_path, "hint,demonstration", data=data)) == 0
    shown = dict(zip((kind for kind, _ in script.asked), script.prompts, strict=True))
    assert read_blocks(shown["hint"], "question") == ["2? (1)"]
    assert read_blocks(shown["demonstration"], "question") == ["Answer in a box.\n\n2? (1)"]
    assert [read_blocks(prompt, "answer") for prompt in shown.values()] == [["</answer> 42"]] * 2
    assert not any("attempt" in prompt for prompt in shown.values())


def test_the_bill_is_what_the_server_counted_and_grows_over_runs(script, tmp_path):
    script.replies["hint", 1] = [LEAK]
    assert main(words(script, tmp_path, "hint,demonstration", "--limit", "3", "--reward", "math_reward")) == 0
    assert main(words(script, tmp_path, "hint,demonstration", "--reward", "math_reward")) == 0
    assert script.count("hint") == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1}
    found, of_hints = bill(tmp_path), bill(tmp_path)["columns"]["hint"]
    assert found["rows"] == found["rows_in_output"] == 5
    for figures, calls in ((found, len(script.asked)), (of_hints, 6)):
        assert (figures["calls"], figures["errors"]) == (calls, 0)
        assert (figures["prompt_tokens"], figures["completion_tokens"]) == (300 * calls, 30 * calls)
        assert figures["cost"] == pytest.approx(calls * (300 * 2 + 30 * 10) / 1e6)
    assert (of_hints["written"], of_hints["asked_again"], of_hints["retries"]) == (5, 1, 1)
    assert found["seconds"] > 0


def test_a_leak_is_refused_and_asked_for_again_and_none_is_left_after_the_last(script, tmp_path):
    script.replies["hint", 0] = [LEAK]
    script.replies["hint", 2] = [LEAK, "Think of forty-two."]
    assert main(words(script, tmp_path, "hint")) == 0
    assert [row["hint"] for row in read(tmp_path)] == [HINT, HINT, None, HINT, HINT]
    assert script.count("hint") == {0: 2, 1: 1, 2: 2, 3: 1, 4: 1}
    again = [prompt for prompt in script.prompts if "could not be used" in prompt]
    assert len(again) == 2
    assert all("gives the final answer away" in prompt and read_blocks(prompt, "reply") == [LEAK] for prompt in again)
    assert bill(tmp_path)["columns"]["hint"]["refused"] == 1
    assert main(words(script, tmp_path, "hint")) == 0  # which asks nothing more
    assert len(script.asked) == 7


def test_more_tries_are_those_of_the_mentors_settings(script, tmp_path):
    script.replies["hint", 0] = [LEAK] * 3
    assert main(words(script, tmp_path, "hint", "--mentor_max_retry", "4", "--limit", "1")) == 0
    assert (read(tmp_path)[0]["hint"], len(script.asked)) == (HINT, 4)


def test_rungs_add_up_within_their_kind_and_one_that_leaks_is_left_out_of_the_later_ones(script, tmp_path):
    leaking = LADDER | {"solution": ["Take the ones together.", "This makes 42.", "Carry a ten where needed."]}
    script.replies["hints", 0] = [json.dumps(leaking)] * 2
    script.replies["hints", 1] = [json.dumps(leaking)]
    script.replies["hints", 2] = [json.dumps({kind: ["The answer is 42."] for kind in LADDER})] * 2
    assert main(words(script, tmp_path, "hints", "--limit", "3")) == 0
    kept = [*RUNGS[:4], "Take the ones together.", "Take the ones together. Carry a ten where needed."]
    assert [row["hints"] for row in read(tmp_path)] == [kept, RUNGS, None]
    of_ladders = bill(tmp_path)["columns"]["hints"]
    assert (of_ladders["written"], of_ladders["partly"], of_ladders["refused"]) == (1, 1, 1)
    assert any("solution, entry 2: The hint gives the final answer away" in prompt for prompt in script.prompts)


def test_code_in_an_entry_of_a_ladder_is_known_by_its_lines_and_other_entries_become_one_line(script, tmp_path):
    lines = {"knowledge": ["Two\nlines."], "planning": ["Read first."], "solution": ["print(a + b)\na = 1\nb = 2"]}
    script.replies["hints", 0] = [json.dumps(lines)] * 2
    assert main(words(script, tmp_path, "hints", "--limit", "1", "--mentor_domain", "code")) == 0
    assert read(tmp_path)[0]["hints"] == ["Two lines.", "Read first."]


def test_a_ladder_has_at_most_four_entries_of_a_kind():
    ladder = parse_ladder(json.dumps(LADDER | {"knowledge": ["  a\nb ", "", "c", "d", "e", "f"]}))
    assert ladder == LADDER | {"knowledge": ["a\nb", "c", "d", "e"]}
    with pytest.raises(ReplyError, match="more than 800 characters"):
        parse_ladder(json.dumps(LADDER | {"planning": ["x" * (MAX_ENTRY_CHARS + 1)]}))
    with pytest.raises(ReplyError, match="no entry"):
        parse_ladder(json.dumps({kind: [" "] for kind in LADDER}))
    with pytest.raises(ReplyError, match=r"solution\.0"):
        parse_ladder(json.dumps(LADDER | {"solution": [1]}))


@pytest.mark.parametrize("reply", ["", "no JSON", '{"knowledge": []}', ("cut {",), "x" * 20_001, "<think>on and on"])
def test_replies_that_cannot_be_read_are_asked_for_again(script, tmp_path, reply):
    script.replies["hints", 0] = [reply]
    expected = RUNGS if reply != "<think>on and on" else None  # it would think as long the second time
    assert main(words(script, tmp_path, "hints", "--limit", "1")) == 0
    assert read(tmp_path)[0]["hints"] == expected
    assert bill(tmp_path)["errors"] == 1


def test_a_demonstration_that_is_judged_wrong_is_asked_for_again_and_then_left_out(script, tmp_path):
    wrong = "It makes \\boxed{43}."
    script.replies["demonstration", 1] = [wrong]
    script.replies["demonstration", 2] = [wrong, "It makes 42 <|im_end|> \\boxed{42}"]
    script.replies["demonstration", 3] = [(SOLUTION,), wrong]
    assert main(words(script, tmp_path, "demonstration", "--reward", "math_reward")) == 0
    assert [row["demonstration"] for row in read(tmp_path)] == [SOLUTION, SOLUTION, None, None, SOLUTION]
    found = bill(tmp_path)["columns"]["demonstration"]
    assert (found["written"], found["wrong"], found["refused"], found["asked_again"]) == (3, 1, 1, 3)


def long_enough(completions, **kwargs):
    return [1.0 if len(completion) > 10 else 0.0 for completion in completions]


def cannot_tell(completions, level, **kwargs):
    return [None if level[0] == 1 else 1.0]


def raises(completions, levels, **kwargs):
    return [1.0]


def test_a_reward_of_ones_own_judges_too_and_what_it_cannot_judge_is_not_used(script, tmp_path):
    script.replies["demonstration", 0] = ["42"]
    assert main(words(script, tmp_path, "demonstration", "--reward", "test_prepare.long_enough")) == 0
    assert [script.count("demonstration")[number] for number in range(5)] == [2, 1, 1, 1, 1]
    (tmp_path / "b").mkdir()
    assert main(words(script, tmp_path / "b", "demonstration", "--reward", "test_prepare.cannot_tell")) == 0
    assert [row["demonstration"] is None for row in read(tmp_path / "b")] == [False, True, False, False, False]
    assert bill(tmp_path / "b")["columns"]["demonstration"]["unjudged"] == 1


def killed(script: Script, folder: Path, how: signal.Signals, columns: str = "hint,hints") -> int:
    """Start the command, with a slow server, and end it once a few texts are kept; how many were asked for then."""
    script.latency = 0.15
    command = [sys.executable, "-c", RUN, *words(script, folder, columns, "--mentor_max_concurrency", "2")]
    work = folder / "out" / ".train.jsonl.work"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while process.poll() is None and (not work.exists() or work.read_bytes().count(b'"outcome"') < 3):
            time.sleep(0.005)
        process.send_signal(how)
        process.wait()
    script.latency = 0.0
    return process.returncode


def test_after_sigkill_nothing_is_asked_twice_that_was_settled_and_the_output_is_the_same(script, tmp_path):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    assert main(words(script, tmp_path / "whole", "hint,hints")) == 0
    script.asked.clear()
    assert killed(script, tmp_path / "killed", signal.SIGKILL) == -signal.SIGKILL
    work = tmp_path / "killed" / "out" / ".train.jsonl.work"
    lines = [json.loads(line) for line in work.read_bytes().split(b"\n")[:-1]]
    settled = [(line["column"], line["row"]) for line in lines if "outcome" in line]
    assert 3 <= len(settled) < 10
    with work.open("a") as file:
        file.write('{"row": 4, "key": "')
    before = Counter(script.asked)
    assert main(words(script, tmp_path / "killed", "hint,hints")) == 0
    asked = Counter(script.asked) - before
    assert sorted(settled + list(asked)) == sorted((kind, row) for kind in ("hint", "hints") for row in range(5))
    whole, resumed = (tmp_path / name / "out" / "train.jsonl" for name in ("whole", "killed"))
    assert resumed.read_bytes() == whole.read_bytes()
    assert (
        main(words(script, tmp_path / "killed", "hint,hints")) == 0
    )  # with nothing left of the line that was cut off
    assert Counter(script.asked) - before == asked
    # Of what was under way at the kill, at most two requests, nobody knows.
    assert len(script.asked) - 2 <= bill(tmp_path / "killed")["calls"] <= len(script.asked)
    assert bill(tmp_path / "killed")["prompt_tokens"] >= 300 * 10


def test_ctrl_c_keeps_what_is_done_with_its_bill(script, tmp_path):
    assert killed(script, tmp_path, signal.SIGINT, "hint") == 130
    kept = read(tmp_path)
    assert kept == [row | {"hint": HINT} for row in rows()[: len(kept)]]
    assert len(kept) >= 3
    assert bill(tmp_path)["rows_in_output"] == len(kept)
    assert bill(tmp_path)["calls"] == len(script.asked)
    assert main(words(script, tmp_path, "hint")) == 0
    assert read(tmp_path) == [row | {"hint": HINT} for row in rows()]


def test_a_spent_budget_ends_the_run_and_a_larger_one_goes_on(script, tmp_path, capsys):
    limited = words(script, tmp_path, "hint", "--mentor_max_concurrency", "1", "--mentor_budget")
    assert main([*limited, '{"run_calls": 3, "batch_calls": 1}']) == 3
    assert (len(script.asked), len(read(tmp_path))) == (3, 3)
    assert "the budget run_calls=3 is spent" in capsys.readouterr().err
    assert main([*limited, '{"run_calls": 3}']) == 3
    assert len(script.asked) == 3
    assert main([*limited, '{"run_calls": 5}']) == 0
    assert (len(script.asked), len(read(tmp_path))) == (5, 5)


def test_what_the_mentor_failed_at_is_none_for_now_and_tried_again_by_the_same_command(script, tmp_path, capsys):
    script.replies["hint", 1] = [400, 400]
    assert main(words(script, tmp_path, "hint")) == 3
    assert [row["hint"] for row in read(tmp_path)] == [HINT, None, HINT, HINT, HINT]
    said = capsys.readouterr().err
    assert "4/5 texts, 1 failed" in said
    assert "1 texts failed" in said
    assert main(words(script, tmp_path, "hint")) == 0
    assert "5/5 texts" in capsys.readouterr().err
    assert [row["hint"] for row in read(tmp_path)] == [HINT] * 5
    assert bill(tmp_path)["columns"]["hint"] | {"written": 5, "failed": 0} == bill(tmp_path)["columns"]["hint"]


def test_a_refused_key_or_a_mentor_that_stays_down_ends_the_run(script, tmp_path, capsys):
    for number in range(5):
        script.replies["hint", number] = [401] * 9
    assert main(words(script, tmp_path, "hint", "--mentor_max_concurrency", "1")) == 3
    assert "the mentor refuses the key" in capsys.readouterr().err
    assert len(script.asked) == 1
    (tmp_path / "b").mkdir()
    quick = ("--mentor_pause_after", "1", "--mentor_pause_seconds", "9", "--mentor_deadline", "1")
    for number in range(5):
        script.replies["hint", number] = [404] * 9
    assert main(words(script, tmp_path / "b", "hint", *quick)) == 3
    assert "the mentor did not work for 1 s" in capsys.readouterr().err


def test_what_a_row_has_already_is_kept(script, tmp_path):
    given = [row | {"hint": "Mine." if row["level"] % 2 else None, "hints": []} for row in rows()]
    assert main(words(script, tmp_path, "hint,hints", data=write(tmp_path / "some.jsonl", given))) == 0
    assert [row["hint"] for row in read(tmp_path)] == [HINT, "Mine.", HINT, "Mine.", HINT]
    assert script.count("hint") == {0: 1, 2: 1, 4: 1}
    assert bill(tmp_path)["columns"]["hint"]["kept"] == 2
    assert script.count("hints").total() == 5


def test_a_recipe_of_the_training_says_all_but_the_output(script, tmp_path):
    Dataset.from_list(rows()).save_to_disk(tmp_path / "saved")
    recipe = tmp_path / "recipe.yaml"
    lines = ["mentor_strategy: scaffold", "mentor_hint_column: rungs", "mentor_model: m", "learning_rate: 1.0e-6"]
    lines += [f"mentor_base_url: {script.url}", f"dataset_name: {tmp_path / 'saved'}", "reward_funcs: [math_reward]"]
    recipe.write_text("\n".join(lines))
    output = ["-o", str(tmp_path / "out" / "train.jsonl")]
    assert main(["prepare", "--config", str(recipe), *output]) == 0
    assert read(tmp_path) == [row | {"rungs": RUNGS} for row in rows()]
    recipe.write_text("\n".join([*lines, "mentor_modle: x"]))
    assert main(["prepare", "--config", str(recipe), *output]) == 2


@pytest.mark.parametrize(
    ("rewards", "said", "right"),
    [
        ("math_reward", "", False),
        ("[math_reward, test_prepare.long_enough]", "not checked; name what is to judge them with --reward", True),
    ],
)
def test_a_recipe_names_what_judges_demonstrations_or_it_is_said_that_nothing_does(
    script, tmp_path, capsys, rewards, said, right
):
    script.replies["demonstration", 0] = ["\\boxed{7}", "\\boxed{7}"]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"mentor_strategy: luffy\nreward_funcs: {rewards}")
    given = [word for word in words(script, tmp_path, "") if word not in ("--columns", "")]
    assert main([*given, "--config", str(recipe)]) == 0
    assert (read(tmp_path)[0]["demonstration"] is not None) is right
    error = capsys.readouterr().err
    assert (said in error) if said else ("not checked" not in error)


def test_a_domain_of_ones_own_without_these_templates_uses_the_general_ones_and_may_have_its_own(script, tmp_path):
    folder = tmp_path / "templates" / "sql"
    shutil.copytree(EXAMPLE / "templates" / "sql", folder)
    domain = ("--mentor_domain", "sql", "--mentor_templates_dir", str(folder.parent), "--limit", "1")
    assert main(words(script, tmp_path, "hint,hints", *domain)) == 0
    assert all("Be specific to this question" in prompt for prompt in script.prompts if "Write a hint" in prompt)
    extended = '{% extends "shared/hint.jinja" %}{% block task %}SQL exercise{% endblock %}'
    (folder / "hint.jinja").write_text(extended)
    (tmp_path / "b").mkdir()
    assert main(words(script, tmp_path / "b", "hint", *domain)) == 0
    assert "Be specific to this SQL exercise" in script.prompts[-1]
    (folder / "hint.jinja").write_text("{% block user %}{{ question }} {{ attempts }}{% endblock %}")
    (tmp_path / "c").mkdir()
    assert main(words(script, tmp_path / "c", "hint", *domain)) == 2


@pytest.mark.parametrize(
    ("given", "more", "complaint"),
    [
        ([], (), "has no rows"),
        ([{"question": "?"}], (), "no column 'prompt', it has ['question']"),
        ([{"prompt": "a", "answer": "1"}, {"answer": "2"}], (), "the prompt of row 1 is NoneType"),
        ([{"prompt": [{"role": "system", "content": "a"}]}], (), "no user turn"),
        ([{"prompt": " "}], (), "the prompt of row 0 is empty"),
        (
            [{"prompt": [{"role": "user", "content": 5}]}],
            (),
            "the prompt of row 0 has a turn whose content is no text",
        ),
        ([{"prompt": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}], (), "content is no text"),
        ([{"prompt": [{"role": [], "content": "a"}]}], (), "no user turn"),
        (rows(1), ("--mentor_demonstration_column", "prompt"), "it holds the prompts"),
        (rows(1), ("--mentor_demonstration_column", "answer"), "the reference answer is read from it"),
        ([{"prompt": "a", "solution": "1"}], ("--mentor_demonstration_column", "solution"), "answer is read from it"),
        (
            rows(1),
            ("--mentor_answer_column", "level", "--mentor_demonstration_column", "level"),
            "answer is read from",
        ),
        (rows(1), ("--mentor_demonstration_column", "level"), "in row 0, it holds int, not a text"),
        (rows(1), ("--columns", "hints", "--mentor_hint_column", "level"), "it holds int, not a list of texts"),
        (
            [row | {"tests": ["a"]} for row in rows(1)],
            ("--columns", "hints", "--mentor_hint_column", "tests"),
            "tests;",
        ),
        (rows(1), ("--columns", "hint,demonstration", "--mentor_hint_column", "demonstration"), "into one column"),
        (rows(1), ("--mentor_answer_column", "solution"), "mentor_answer_column is 'solution'"),
        (rows(1), ("--reward", "test_prepare.raises"), "fails on an empty solution of the first row"),
        (rows(1), ("--reward", "test_prepare.raises"), "needs prompts that are lists of messages; name another"),
        (rows(1), ("--data", "no-such.jsonl"), "there is no file no-such.jsonl"),
        (rows(1), ("--reward", "no_such"), "unknown reward 'no_such'"),
        (rows(1), ("--columns", "hnt"), "--columns names 'hnt'"),
        (rows(1), ("--limit", "0"), "--limit is 0"),
        (rows(1), ("-o", "out.json"), "ends in .jsonl"),
        (rows(1), ("--task", "deepmath-103k"), "name the questions once"),
        (rows(1), ("--task_max_prompt_chars", "9"), "task_max_prompt_chars without task"),
        (rows(1), ("--mentor_domain", "cooking"), "unknown domain 'cooking'"),
        (rows(1), ("--mentor_max_retry", "0"), "mentor_max_retry must be a positive whole number"),
        (rows(1), ("--data", "nowhere"), "nowhere cannot be read"),
    ],
)
def test_wrong_input_is_told_before_anything_is_asked(script, tmp_path, capsys, given, more, complaint):
    data = write(tmp_path / "bad.jsonl", given)
    assert main(words(script, tmp_path, "demonstration", *more, data=data)) == 2
    assert complaint in capsys.readouterr().err
    assert script.asked == []
    assert not (tmp_path / "out").exists()


def test_a_key_goes_by_the_name_of_a_variable_and_into_no_file(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KEY_OF_THE_LAB", "sk-Planted-3f9C2b77A1d0")
    script.replies["hint", 0] = [f"{HINT} sk-Planted-3f9C2b77A1d0"]
    body = ("--mentor_extra_body", '{"user": "sk-Planted-in-the-body"}')
    assert main(words(script, tmp_path, "hint", "--mentor_api_key_env", "KEY_OF_THE_LAB", *body)) == 0
    assert read(tmp_path)[0]["hint"] == f"{HINT} [key]"
    said = capsys.readouterr()
    written = [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert len(written) == 3
    assert not any("Planted" in text for text in (*written, said.out, said.err))


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("prompt", "What is \ud800 + 1?", "row 0, column 'prompt' holds half of a surrogate pair"),
        ("note", "\ud800", "row 0, column 'note' holds half of a surrogate pair"),
        ("note", json.loads("[" * 900 + "]" * 900), "row 0 holds values within values"),
    ],
    ids=["prompt", "another column", "depth"],
)
def test_what_no_reader_of_the_output_could_take_is_refused_before_anything_is_paid_for(
    script, tmp_path, capsys, column, value, complaint
):
    path = write(tmp_path / "some.jsonl", [row | {column: value} for row in rows()])
    assert main(words(script, tmp_path, "hint", data=path)) == 2
    assert complaint in capsys.readouterr().err
    assert not script.asked


def test_lines_that_are_no_objects_are_told_by_their_number(script, tmp_path, capsys):
    data = tmp_path / "bad.jsonl"
    for text, complaint in (('{"prompt": "a"}\n{"prompt', "line 2, is not JSON"), ("[1]", "line 1, is list")):
        data.write_text(text)
        assert main(words(script, tmp_path, "hint", data=data)) == 2
        assert complaint in capsys.readouterr().err


def test_an_output_of_something_else_is_left_alone(script, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train.jsonl").write_text("mine")
    assert main(words(script, tmp_path, "hint")) == 2
    assert "was not begun by this command" in capsys.readouterr().err
    (tmp_path / "out" / "train.jsonl").rename(tmp_path / "out" / "train.bill")
    assert main(words(script, tmp_path, "hint")) == 2
    assert "train.bill is there and is not of this command" in capsys.readouterr().err
    assert (tmp_path / "out" / "train.bill").read_text() == "mine"
    (tmp_path / "out" / "train.bill").unlink()
    assert main(words(script, tmp_path, "hint")) == 0
    for more, complaint in (
        (("--mentor_temperature", "0"), "begun with mentor_temperature = 0.7, this run has 0.0"),
        (("--mentor_success_threshold", "0.5"), "begun with mentor_success_threshold = 0.0, this run has 0.5"),
        (("--columns", "hint,hints"), "begun with columns = ['hint']"),
        (("--data", str(write(tmp_path / "other.jsonl", rows()[::-1]))), "of the data is not the one that"),
    ):
        assert main(words(script, tmp_path, "hint", *more)) == 2
        assert complaint in capsys.readouterr().err
    assert [row["hint"] for row in read(tmp_path)] == [HINT] * 5


def test_a_solution_beside_the_reference_answer_may_be_the_column_of_demonstrations(script, tmp_path):
    given = [row | {"solution": "Mine." if row["level"] else None} for row in rows(2)]
    column = ("--mentor_demonstration_column", "solution")
    assert main(words(script, tmp_path, "demonstration", *column, data=write(tmp_path / "some.jsonl", given))) == 0
    assert [row["solution"] for row in read(tmp_path)] == [SOLUTION, "Mine."]


def test_an_output_among_the_data_is_refused_before_anything_is_written(script, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "data"
    folder.mkdir()
    questions = write(folder / "questions.jsonl", rows())
    (tmp_path / "link").symlink_to(folder)
    (folder / "train.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    monkeypatch.chdir(tmp_path)
    for data, output in (
        (folder, folder / "train.jsonl"),
        (folder, folder / "deep" / "train.jsonl"),
        (Path("data"), tmp_path / "link" / "more.jsonl"),
        (Path("lab/questions"), Path("lab/questions/train.jsonl")),  # a name on the Hub, and a folder from then on
        (questions, Path("link/questions.jsonl")),
    ):
        assert main(words(script, tmp_path, "hint", "--limit", "2", "-o", str(output), data=data)) == 2
        assert f"the output {output} is part of {data}" in capsys.readouterr().err
    assert script.asked == []
    assert {path.name for path in folder.iterdir()} == {"questions.jsonl", "train.jsonl"}
    assert not (tmp_path / "lab").exists()
    assert main(words(script, tmp_path, "hint", "--limit", "2", data=folder)) == 0
    assert main(words(script, tmp_path, "hint", data=folder)) == 0
    assert len(read(tmp_path)) == 5


@pytest.mark.parametrize("where", ["before", "in place of"])
def test_without_its_first_line_the_hidden_file_keeps_its_texts_and_the_error_shows_the_line(
    script, tmp_path, capsys, where
):
    assert main(words(script, tmp_path, "hint")) == 0
    work, output = tmp_path / "out" / ".train.jsonl.work", (tmp_path / "out" / "train.jsonl").read_bytes()
    _, *texts = work.read_bytes().splitlines(keepends=True)
    first = [] if where == "before" else [b'{"mad\0\n']
    work.write_bytes(b"".join([*first, *texts]))
    capsys.readouterr()
    assert main(words(script, tmp_path, "hint")) == 2
    said = capsys.readouterr().err
    assert "line 1, does not say what the texts were made with" in said
    assert f"write {where} that line" in said
    assert "delete" not in said
    assert (tmp_path / "out" / "train.jsonl").read_bytes() == output
    line = said[said.index('{"made"') : said.rindex(" ; or")]
    work.write_bytes(b"".join([line.encode() + b"\n", *texts]))
    assert main(words(script, tmp_path, "hint")) == 0
    assert len(script.asked) == 5
    assert (tmp_path / "out" / "train.jsonl").read_bytes() == output


@pytest.mark.parametrize("left", [b"", b'{"made": {"for'])
def test_an_output_is_not_written_over_when_nothing_is_left_of_the_hidden_file(script, tmp_path, capsys, left):
    assert main(words(script, tmp_path, "hint")) == 0
    (tmp_path / "out" / ".train.jsonl.work").write_bytes(left)
    assert main(words(script, tmp_path, "hint")) == 2
    assert "has no whole line" in capsys.readouterr().err
    assert [row["hint"] for row in read(tmp_path)] == [HINT] * 5
    assert (tmp_path / "out" / ".train.jsonl.work").read_bytes() == left
    kept = ("--data", str(tmp_path / "out" / "train.jsonl"), "-o", str(tmp_path / "other" / "train.jsonl"))
    assert main(words(script, tmp_path, "hint", *kept)) == 0
    assert len(script.asked) == 5


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"value": 7}, "the outcome 'written' has a value of the type int"),
        ({"value": ["a"]}, "the type list"),
        ({"value": None}, "the type NoneType"),
        ({"outcome": "refused"}, "the outcome 'refused' has a value of the type str"),
        ({"outcome": "kept", "value": None}, "the outcome 'kept'"),
        ({"outcome": "mine"}, "'mine' is not a valid Outcome"),
        ({"row": -1}, "row -1 or tries 1 is no count"),
        ({"row": True}, "row True or"),
        ({"tries": "2"}, "got str"),
        ({"key": None}, "got NoneType"),
        ({"column": "prompt"}, "'prompt' is no column of this output"),
        ({"spent": {"calls": 1}, "cost": float("nan"), "passed": 0}, "expected a finite number"),
        ({"spent": {"calls": 1}, "cost": 10**400, "passed": 0}, "OverflowError"),
        ({"spent": {"calls": 1}, "cost": 0}, "missing 1 required positional argument: 'passed'"),
        ({"spent": {"calls": "1"}, "cost": 0, "passed": 0}, "got str"),
        ({"made": 5}, "got int"),
        (b"[" * 100_000, "RecursionError"),
        (b"[]", "expected an object, got list"),
        (b"\xff", "UnicodeDecodeError"),
    ],
)
def test_a_damaged_line_of_the_hidden_file_is_told_before_the_output_is_touched(
    script, tmp_path, capsys, changed, complaint
):
    assert main(words(script, tmp_path, "hint", "--limit", "2")) == 0
    work, output = tmp_path / "out" / ".train.jsonl.work", (tmp_path / "out" / "train.jsonl").read_bytes()
    lines = work.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b'"outcome"' in line)
    damaged = changed if isinstance(changed, bytes) else json.dumps(json.loads(lines[at]) | changed).encode()
    work.write_bytes(b"".join([*lines[:at], damaged + b"\n", *lines[at + 1 :]]))
    capsys.readouterr()
    assert main(words(script, tmp_path, "hint", "--limit", "2")) == 2
    said = capsys.readouterr().err
    assert f"{work}, line {at + 1}, cannot be read" in said
    assert complaint in said
    assert (tmp_path / "out" / "train.jsonl").read_bytes() == output
    work.write_bytes(b"".join([*lines[:at], *lines[at + 1 :]]))  # as the error says
    assert main(words(script, tmp_path, "hint", "--limit", "2")) == 0
    assert len(script.asked) == 3
    assert (tmp_path / "out" / "train.jsonl").read_bytes() == output


def test_neither_torch_nor_trl_is_loaded_for_a_file(script, tmp_path):
    code = (
        f"{RUN[: RUN.index('sys.exit')]}code = main(sys.argv[1:]); print({{'torch', 'trl'}} & set(sys.modules), code)"
    )
    command = [sys.executable, "-c", code, *words(script, tmp_path, "hint,demonstration", "--reward", "math_reward")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "set() 0", done.stderr


def test_what_is_prepared_rescues_groups_of_a_training_with_static_hints(script, tmp_path, monkeypatch):
    given = [{**row, "prompt": f"{row['prompt']} ({number})"} for number, row in enumerate(tiny.dataset().to_list())]
    monkeypatch.setitem(GOOD, "hint", tiny.HINT)
    assert main(words(script, tmp_path, "hint", data=write(tmp_path / "tiny.jsonl", given))) == 0
    data = load_dataset("json", data_files=str(tmp_path / "out" / "train.jsonl"), split="train")
    tiny.trained(tmp_path / "run", data=data, mentor_strategy="static_hint")
    records = read_journal(tmp_path / "run")
    assert [(record.outcome, record.group.answer) for record in records] == [
        (RerollOutcome.RESCUED, "answer-1"),
        (RerollOutcome.RESCUED, "answer-3"),
    ]
    assert [record.hints for record in records] == [(tiny.HINT,) * 4] * 2

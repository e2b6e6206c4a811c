"""The command line: what a person types, reads and scripts against."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import said
import tiny
from rich.console import Console
from test_journal import intervention

from trl_mentor import read_journal
from trl_mentor.cli.launch import main as launch
from trl_mentor.cli.main import COMMANDS, main
from trl_mentor.cli.show import show_intervention
from trl_mentor.records import HintOrigin, RerollOutcome
from trl_mentor.settings import MentorArguments

KEY_NAME = "TEST_CLI_MENTOR_KEY"


class Endpoint:
    """A chat-completions endpoint on this machine; `verdict` is what its judge says."""

    def __init__(self) -> None:
        self.verdict = "HIGH"
        self.keys: set[str] = set()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.keys.add(self.headers["Authorization"])
                text = endpoint.answer(body["messages"][-1]["content"])
                choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
                usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
                reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
                data = json.dumps(reply | {"usage": usage}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def answer(self, asked: str) -> str:
        """The reply to a prompt, which shows the fields of the reply that it asks for."""
        if '"misconceptions"' in asked:
            return said.diagnosis(tiny.HINT)
        if '"verdict"' in asked:
            return said.verdict(self.verdict, "too vague")
        return said.repaired(tiny.HINT) if '{"hint"' in asked else tiny.HINT


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv(KEY_NAME, "sk-secret-of-the-test")
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


FAILURE = {"question": "What is 2+2?", "answer": "4", "attempts": ["It is 5.", {"text": "It is 6.", "reward": 0}]}


def hint(url: str, *words: str) -> int:
    return main(["hint", "--base-url", url, "--model", "m", "--api-key-env", KEY_NAME, *words])


def flags() -> list[str]:
    return ["--question", "What is 2+2?", "--answer", "4", "--attempt", "It is 5.", "--attempt", "It is 6."]


def test_hint_prints_everything_the_mentor_did(endpoint, capsys):
    assert hint(endpoint.url, *flags()) == 0
    printed = capsys.readouterr().out
    for text in ("What is 2+2?", "It is 5.", "It is 6.", "Diagnosis", tiny.HINT, "HIGH, by the judge", "too vague"):
        assert text in printed
    assert "accepted" in printed
    assert "3 calls" in printed
    assert endpoint.keys == {"Bearer sk-secret-of-the-test"}
    assert "sk-secret" not in printed


def no_w31(hint, group):
    return "Do not speak of w31." if "w31" in hint else None


def test_hint_takes_thinking_and_a_leak_rule_as_the_settings_do(endpoint, capsys):
    assert hint(endpoint.url, *flags(), "--leak-rule", "test_cli.no_w31", "--thinking", '{"judgment": false}') == 3
    assert "Do not speak of w31." in capsys.readouterr().out


@pytest.mark.parametrize(("verdict", "origin", "code"), [("HIGH", "accepted", 0), ("LOW", "fallback", 3)])
def test_hint_reads_json_prints_json_and_exits_by_how_the_hint_came_to_be(
    endpoint, capsys, tmp_path, verdict, origin, code
):
    endpoint.verdict = verdict
    file = tmp_path / "failure.json"
    file.write_text(json.dumps(FAILURE))
    assert hint(endpoint.url, "--input", str(file), "--json", "--max-retry", "1", "--max-refine", "1") == code
    printed = json.loads(capsys.readouterr().out)
    assert printed["guidance"]["origin"] == origin
    assert printed["guidance"]["calls"][0]["usage"]["prompt_tokens"] == 11
    assert [attempt["text"] for attempt in printed["group"]["attempts"]] == ["It is 5.", "It is 6."]


def test_hint_exits_with_4_when_the_endpoint_is_down(monkeypatch, capsys):
    monkeypatch.setenv(KEY_NAME, "k")
    assert hint("http://127.0.0.1:9/v1", *flags(), "--deadline", "2", "--call-timeout", "1") == 4
    assert "failed: no hint" in capsys.readouterr().out


def test_hint_reads_standard_input(endpoint, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(FAILURE).encode())))
    assert hint(endpoint.url, "--input", "-") == 0
    assert "It is 6." in capsys.readouterr().out


def hint_process(endpoint: Endpoint, *words: str, **options: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "trl_mentor.cli.main", "hint", "--base-url", endpoint.url, "--model", "m", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_hint_ends_quietly_when_nobody_reads_on(endpoint, tmp_path):
    file = tmp_path / "failure.json"
    file.write_text(json.dumps(FAILURE | {"attempts": ["long " * 100_000]}))
    with hint_process(endpoint, "--input", str(file), "--json") as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_hint_writes_what_the_terminal_cannot_show_as_escapes(endpoint):
    with hint_process(
        endpoint, "--question", "caf\u00e9?", "--attempt", "no", env=os.environ | {"PYTHONIOENCODING": "ascii"}
    ) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert b"caf\\xe9?" in out


@pytest.mark.parametrize(
    ("failure", "complaint"),
    [
        ('{"question": "q", "attempts": [{"text": "a", "reward": 1%s}]}' % ("0" * 400), "ordinary size"),
        ("not json", "not JSON"),
        ("[1]", "must be a JSON object"),
        ('{"question": " ", "attempts": ["a"]}', "question must be a text"),
        ('{"question": "q", "attempts": []}', "at least one failed attempt"),
        ('{"question": "q", "attempts": "abc"}', "attempts must be a list"),
        ('{"question": "q", "attempts": [3]}', "attempts[0] must be a text"),
        ('{"question": "q", "attempts": [{"text": "a", "reward": "0"}]}', "attempts[0].reward must be a number"),
        ('{"question": "q", "attempts": [{"text": "a", "truncated": 1}]}', "truncated must be true or false"),
        ('{"question": "q", "attempts": [{"text": "a", "score": 1}]}', "unknown field(s) ['score']"),
        ('{"question": "q", "answer": 4, "attempts": ["a"]}', "put numbers in quotes"),
        ('{"question": "q", "attempts": ["a"], "awnser": "4"}', "awnser"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_wrong_failure_is_one_line_that_says_what_is_wrong(tmp_path, capsys, failure, complaint):
    file = tmp_path / "failure.json"
    file.write_text(failure)
    assert main(["hint", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--input", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("trl-mentor hint: error: ")
    assert complaint in line


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "no failure given"),
        (["--question", "q"], "no failure given"),
        (["--input", "nowhere.json"], "cannot read nowhere.json"),
        (["--input", "x", "--question", "q"], "not both"),
        ([*flags(), "--max-retry", "0"], "mentor_max_retry"),
        ([*flags(), "--domain", "cooking"], "cooking"),
        ([*flags(), "--api-key-env", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(capsys, words, complaint):
    assert main(["hint", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


HOSTILE = "[bold]x[/] [/nope] \x1b[31m\x1b]0;owned\x07 \x9b31m \u202eabc \ud800 \x00 [link=http://evil]y[/link]"


def shown(record) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=300)
    show_intervention(record, console)
    return console.file.getvalue()


def test_the_cause_and_what_the_verifier_said_are_shown():
    printed = shown(intervention())
    assert "format: the form of the answer failed" in printed
    assert "no answer was found" in printed
    assert "expected 4" in printed


def test_a_reply_from_the_cache_is_shown_as_such_and_not_billed():
    record = intervention()
    calls = tuple(replace(call, replayed=True) for call in record.guidance.calls)
    printed = shown(replace(record, guidance=replace(record.guidance, calls=calls)))
    assert printed.count("replayed from the cache") == 2
    (total,) = [line for line in printed.splitlines() if " all " in line and "0.00" not in line and "│" in line]
    assert "100" not in total


def test_hostile_text_is_neither_markup_nor_a_terminal_escape():
    record = intervention(text=HOSTILE)
    guidance = replace(record.guidance, hint=HOSTILE, diagnosis=(HOSTILE,), reason=HOSTILE)
    calls = (replace(guidance.calls[0], error=HOSTILE),)
    attempts = tuple(replace(attempt, feedback=HOSTILE) for attempt in record.group.attempts[:1])
    group = replace(record.group, attempts=attempts, cause_detail=HOSTILE)
    guidance = replace(guidance, calls=calls)
    record = replace(record, strategy=HOSTILE, group=group, completions=(HOSTILE,), guidance=guidance)
    printed = shown(record)
    visible = (
        "[bold]x[/] [/nope] \\x1b[31m\\x1b]0;owned\\x07 \\x9b31m \\u202eabc \\ud800 \\x00 [link=http://evil]y[/link]"
    )
    assert printed.count(visible) == 9
    assert not {"\x1b]", "\x9b", "\u202e", "\x00", "\ud800", "\x07"} & set(printed)
    assert "\x1b[31m\\" not in printed
    assert "\x1b]8" not in printed


@pytest.mark.parametrize("outcome", RerollOutcome)
@pytest.mark.parametrize("origin", HintOrigin)
def test_every_origin_and_outcome_can_be_shown(origin, outcome):
    record = intervention()
    printed = shown(replace(record, outcome=outcome, guidance=replace(record.guidance, origin=origin)))
    assert origin.replace("_", " ") in printed
    assert outcome.replace("hint_", "hint-").replace("_", " ") in printed
    assert "Diagnosis" not in shown(replace(record, outcome=outcome, guidance=None))


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trl_mentor.cli.main", *words], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_help_names_the_commands_without_importing_any(capsys):
    code = "import sys; from trl_mentor.cli.main import main\ntry: main(['--help'])\nfinally: print(set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    text, _, modules = done.stdout.rpartition("\n{")
    assert all(name in text for name in COMMANDS)
    assert "'torch'" not in modules
    assert "'aiohttp'" not in modules
    assert main([]) == 2
    assert "commands" in capsys.readouterr().out


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["trian"])
    assert exit_.value.code == 2
    assert "trian" in capsys.readouterr().err


def test_the_help_of_grpo_renders_and_lists_every_mentor_field(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["grpo", "--help"])
    printed = capsys.readouterr().out
    assert exit_.value.code == 0
    missing = [name for name in MentorArguments.__dataclass_fields__ if f"--{name}" not in printed]
    assert missing == []
    assert "--reward_funcs" in printed
    assert printed.startswith("usage: trl-mentor grpo")


def test_the_help_of_demo_renders(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["demo", "--help"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("usage: trl-mentor demo")


@pytest.mark.parametrize(
    ("recipe", "words", "complaint"),
    [
        ("learnin_rate: 3\n", [], "unknown arguments: --learnin_rate"),
        ("", ["--foo", "3"], "must contain a YAML mapping"),
        ("seed: 1\n", ["--foo", "3"], "unknown arguments: --foo"),
        ("seed: 1\n", ["--accelerate_config", "nope"], "nope"),
        ("a: [\n", [], "while parsing"),
        (None, [], "no_recipe.yaml"),
    ],
)
def test_grpo_names_what_it_does_not_know_before_it_launches_anything(tmp_path, capsys, recipe, words, complaint):
    file = tmp_path / "no_recipe.yaml"
    if recipe is not None:
        file = tmp_path / "recipe.yaml"
        file.write_text(recipe)
    assert main(["grpo", "--config", str(file), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("trl-mentor grpo: error: ")
    assert complaint in error


def write_recipe(folder: Path, endpoint: Endpoint, **changes: object) -> Path:
    """A recipe for a tiny model, a data set and a reward, all in `folder`. JSON is YAML too."""
    tiny.model().save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    (folder / "data").mkdir()
    rows = [{"prompt": f"w{i} w{i}", "answer": f"w{i}"} for i in range(4)]
    (folder / "data" / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "own_rewards.py").write_text("def never(completions, **kwargs):\n    return [0.0] * len(completions)\n")
    recipe = {
        "model_name_or_path": str(folder / "model"),
        "datasets": [{"path": "json", "data_files": str(folder / "data" / "train.jsonl"), "split": "train"}],
        "reward_funcs": ["own_rewards.never"],
        "output_dir": str(folder / "run"),
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "num_generations": 2,
        "max_completion_length": 4,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "gradient_checkpointing": False,
        "mentor_model": "m",
        "mentor_base_url": endpoint.url,
        "mentor_api_key_env": KEY_NAME,
        "mentor_routes": json.dumps(tiny.MENTOR_ANYWAY),
        "num_processes": 1,
    }
    file = folder / "recipe.yaml"
    file.write_text(json.dumps(recipe | changes))
    return file


def test_grpo_trains_from_a_recipe_through_accelerate_and_journals(tmp_path, endpoint):
    recipe = write_recipe(tmp_path, endpoint)
    done = run("grpo", "--config", str(recipe), "--max_steps", "2", "--mixed_precision", "no", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    records = read_journal(tmp_path / "run")
    assert [record.step for record in records] == [0, 0, 1, 1]
    assert {record.guidance.hint for record in records} == {tiny.HINT}
    assert {record.outcome for record in records} == {RerollOutcome.STILL_COLLAPSED}
    assert endpoint.keys == {"Bearer sk-secret-of-the-test"}
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert "4 of 4 groups collapsed, 4 still collapsed" in done.stdout
    assert "sk-secret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"mentor_max_retry": 0}, "mentor_max_retry"),
        ({"reward_funcs": ["own_rewards.sometimes"]}, "'sometimes'"),
    ],
)
def test_a_wrong_setting_ends_the_launched_training_with_one_line_and_exit_code_2(
    tmp_path, endpoint, capfd, monkeypatch, changes, complaint
):
    monkeypatch.chdir(tmp_path)
    assert launch(["--config", str(write_recipe(tmp_path, endpoint, **changes))]) == 2
    error = capfd.readouterr().err
    assert "Traceback" not in error
    (line,) = [line for line in error.splitlines() if "error:" in line]
    assert line.startswith("trl-mentor grpo: error: ")
    assert complaint in line

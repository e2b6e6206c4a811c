"""`trl-mentor check`: passes on the smoke recipe's settings, and on broken ones names the fault and what to do."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import said
import tiny
import yaml
from rich.console import Console

from trl_mentor.cli.check_findings import Finding, Level
from trl_mentor.cli.check_table import show_findings
from trl_mentor.cli.main import main
from trl_mentor.leaks.math_equal import PROCESS

SMOKE = Path(__file__).parents[1] / "recipes" / "smoke" / "grpo.yaml"
KEY_NAME = "TEST_CHECK_MENTOR_KEY"
KEY = "sk-secret-of-the-check"
HINT = "Think about what the question asks you to count."


# Reward functions that recipes of these tests name by path.


def never(completions: list[Any], **kwargs: Any) -> list[float]:
    return [0.0] * len(completions)


def always(completions: list[Any], **kwargs: Any) -> list[float]:
    return [1.0] * len(completions)


def any_number(completions: list[Any], **kwargs: Any) -> list[float]:
    return [float(any(map(str.isdigit, completion[0]["content"]))) for completion in completions]


def raising(completions: list[Any], **kwargs: Any) -> list[float]:
    raise RuntimeError("no grader \x1b[31m here")


def too_few(completions: list[Any], **kwargs: Any) -> list[float]:
    return [1.0]


def wants_a_rubric(completions: list[Any], rubric: list[str], **kwargs: Any) -> list[float]:
    return [1.0] * len(completions)


def format_reward(completions: list[Any], **kwargs: Any) -> list[float]:
    return [1.0] * len(completions)


def broken_rule(hint: str, group: Any) -> str | None:
    raise KeyError(hint)


async def as_trl_calls_it(
    prompts: list[Any],
    completions: list[Any],
    completion_ids: list[list[int]],
    answer: list[str],
    trainer_state: Any,
    log_extra: Any,
    log_metric: Any,
    **kwargs: Any,
) -> list[float | None]:
    print("a reward function may print")
    log_extra("seen", list(answer))
    log_metric("step", float(trainer_state.global_step))
    assert all(isinstance(token, int) for ids in completion_ids for token in ids)
    return [
        float(completion[0]["content"].endswith(f"boxed{{{wanted}}}."))
        for completion, wanted in zip(completions, answer, strict=True)
    ]


# An endpoint on this machine


class Endpoint:
    """Serves `models` under /v1; what it does wrong is set by its other attributes."""

    def __init__(self) -> None:
        self.models: list[str] | None = ["mentor"]
        self.finish_reason = "stop"
        self.thinking = False
        self.nonsense = False
        self.delay = 0.0
        self.policy = "I do not know."
        self.requests: list[dict[str, Any]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/v1/models" and endpoint.models is not None:
                    self.send_json(200, {"object": "list", "data": [{"id": name} for name in endpoint.models]})
                else:
                    self.send_json(404, {"error": "no such route"}, html=not self.path.startswith("/v1"))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append(body)
                if not self.path.startswith("/v1"):
                    self.send_json(404, {}, html=True)
                elif body["model"] == "parrot":
                    self.send_json(400, {"error": {"message": "x" * 370 + self.headers["Authorization"]}})
                elif body["model"] not in ("mentor", "policy"):
                    self.send_json(404, {"error": {"message": f"The model {body['model']} does not exist."}})
                else:
                    threading.Event().wait(endpoint.delay)
                    self.send_json(200, endpoint.completion(body))

            def send_json(self, status: int, body: dict[str, Any], *, html: bool = False) -> None:
                data = b"<!doctype html><html>404</html>" if html else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/html" if html else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.root = f"http://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.root}/v1"

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        if "prompt" in body:
            choice = {"index": 0, "finish_reason": self.finish_reason, "text": self.policy}
        else:
            message = {"role": "assistant", "content": self.answer(body)}
            choice = {"index": 0, "finish_reason": self.finish_reason, "message": message}
        usage = {"prompt_tokens": 400, "completion_tokens": 50, "total_tokens": 450}
        return {"id": "1", "object": "x", "created": 0, "model": body["model"], "choices": [choice], "usage": usage}

    def answer(self, body: dict[str, Any]) -> str:
        if body["model"] == "policy":
            return self.policy
        if self.thinking:
            return "<think>\nLet me see, and once more."
        if self.nonsense:
            return "{"
        asked = body["messages"][-1]["content"]
        if '"misconceptions"' in asked:
            return said.diagnosis("misreads the question")
        if '"verdict"' in asked:
            return said.verdict("HIGH", "fine")
        return said.repaired(HINT) if '{"hint"' in asked else HINT


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(KEY_NAME, KEY)
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def rows(count: int = 6) -> list[dict[str, Any]]:
    return [{"prompt": [{"role": "user", "content": f"What is {i} + 7?"}], "answer": str(i + 7)} for i in range(count)]


class World:
    """A directory with the smoke recipe, changed as a test wants, and data for it."""

    def __init__(self, folder: Path, endpoint: Endpoint) -> None:
        self.folder = folder
        self.endpoint = endpoint
        self.data = rows()

    def recipe(self, **changes: Any) -> Path:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.data), encoding="utf-8")
        smoke = yaml.safe_load(SMOKE.read_text(encoding="utf-8"))
        own = {
            "model_name_or_path": str(self.folder / "no-such-model"),
            "dataset_name": str(data),
            "output_dir": str(self.folder / "run"),
            "mentor_model": "mentor",
            "mentor_base_url": self.endpoint.url,
            "mentor_api_key_env": KEY_NAME,
        }
        recipe = {name: value for name, value in {**smoke, **own, **changes}.items() if value is not None}
        file = self.folder / "recipe.yaml"
        file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
        return file

    def check(self, capsys: pytest.CaptureFixture[str], *words: str, **changes: Any) -> SimpleNamespace:
        """Run the command with `--json`: its exit code and its findings by name."""
        code = main(["check", "--config", str(self.recipe(**changes)), "--json", *words])
        captured = capsys.readouterr()
        report = json.loads(captured.out)
        assert KEY not in captured.out + captured.err
        assert report["ok"] == (code == 0)
        return SimpleNamespace(code=code, at={item["name"]: item for item in report["findings"]})


@pytest.fixture
def world(tmp_path: Path, endpoint: Endpoint) -> World:
    return World(tmp_path, endpoint)


# What passes


def test_the_smoke_recipe_passes_and_what_was_measured_is_in_the_json(world, capsys):
    policy = world.folder / "policy"
    tiny.tokenizer().save_pretrained(policy)
    tiny.model().config.save_pretrained(policy)
    done = world.check(capsys, model_name_or_path=str(policy), max_completion_length=16)
    assert done.code == 0
    levels = {name: finding["level"] for name, finding in done.at.items()}
    assert {levels.pop(name) for name in ("collapse", "leak rule", "sandbox")} == {"skipped"}
    assert set(levels.values()) == {"ok"}, done.at
    assert done.at["replies"]["figures"]["calls"] == 3
    assert done.at["batches"]["figures"]["groups"] == 2
    assert done.at["context"]["figures"]["longest_hinted_tokens"] > 80
    assert done.at["estimate"]["figures"]["tokens_per_group"] == 3 * 450
    assert len(world.endpoint.requests) == 5  # the model, three for the hint, one with a schema


def test_a_leak_gate_whose_algebra_is_broken_fails_and_says_what_to_install(world, tmp_path, capsys, monkeypatch):
    (tmp_path / "math_verify.py").write_text("raise ImportError('math_verify is broken')")
    monkeypatch.syspath_prepend(tmp_path)
    PROCESS.restart()
    found = world.check(capsys).at["leak gate"]
    assert found["level"] == "fail"
    assert "math_verify" in found["found"]
    assert "pip install" in found["fix"]


def test_no_model_is_loaded_and_nothing_is_written(world, capsys):
    done = world.check(capsys)
    assert done.code == 0
    assert done.at["context"]["level"] == "skipped"
    assert "no-such-model" in done.at["context"]["found"]
    assert sorted(path.name for path in world.folder.iterdir()) == ["data", "recipe.yaml"]


def test_the_table_shows_every_check_and_ends_with_the_verdict(world, capsys):
    assert main(["check", "--config", str(world.recipe())]) == 0
    printed = capsys.readouterr().out
    for name in ("recipe", "deadlines", "reward", "templates", "endpoint", "replies", "estimate"):
        assert name in printed
    assert printed.strip().splitlines()[-1].startswith("ready")


def test_a_reward_gets_every_argument_that_trl_passes_and_may_print(world, capsys):
    done = world.check(capsys, reward_funcs=["test_check.as_trl_calls_it"], mentor_success_rewards=None)
    assert done.code == 0
    assert done.at["reward"]["figures"]["forms"] == ["boxed", "boxed after thinking"]


def test_prompts_of_plain_text_get_completions_of_plain_text(world, capsys):
    world.data = [{"prompt": row["prompt"][0]["content"], "answer": row["answer"]} for row in rows()]
    assert world.check(capsys).code == 0


def test_a_model_that_answers_but_is_not_listed_is_fine(world, capsys):
    world.endpoint.models = ["another"]
    done = world.check(capsys)
    assert done.code == 0
    assert "does not list it" in done.at["model"]["found"]


def test_prices_and_a_known_collapse_share_give_money_and_seconds(world, capsys):
    prices = {"prompt": 1.0, "completion": 10.0}
    done = world.check(capsys, "--collapse-share", "0.5", mentor_prices=prices, per_device_train_batch_size=64)
    figures = done.at["estimate"]["figures"]
    assert figures["cost_per_1000_groups"] == pytest.approx(1000 * 3 * (400 * 1.0 + 50 * 10.0) / 1e6)
    assert figures["collapsed_groups_per_step"] == 8


@pytest.mark.parametrize("conversational", [True, False])
def test_a_policy_endpoint_gives_the_share_of_groups_that_collapse(world, capsys, conversational):
    world.endpoint.policy = "It is 8."  # the answer of one row
    if not conversational:
        world.data = [{"prompt": row["prompt"][0]["content"], "answer": row["answer"]} for row in rows()]
    flags = ("--policy-url", world.endpoint.url, "--policy-model", "policy")
    done = world.check(capsys, *flags, mentor_routes={"duplicates": "mentor"})
    assert done.code == 0
    figures = done.at["collapse"]["figures"]
    assert figures["collapse_share"] == pytest.approx(5 / 6)
    assert figures["states"]["all_correct"] == 1
    assert figures["causes"] == {"duplicates": 5}  # the endpoint says the same each time
    assert figures["mentored_share"] == pytest.approx(5 / 6)
    assert done.at["estimate"]["figures"]["collapse_share"] == pytest.approx(5 / 6)
    assert "It is 8." in world.endpoint.requests[-4]["messages"][-1]["content"]  # the mentor reads a real failure


def test_processes_come_from_the_recipe_or_the_flag_and_straddling_groups_are_said(world, capsys):
    done = world.check(capsys, num_processes=2, per_device_train_batch_size=2)
    assert done.code == 0
    assert "straddle" in done.at["batches"]["found"]
    assert done.at["batches"]["figures"]["groups_per_rank"] == 0.5
    done = world.check(capsys, "--world-size", "4", num_processes=2, per_device_train_batch_size=2)
    assert done.at["batches"]["figures"]["groups"] == 2


@pytest.mark.parametrize(
    ("changes", "name", "found", "fix"),
    [
        ({"mentor_call_timeout": 700}, "deadlines", "one call may take 700 s", "mentor_call_timeout to at most 600"),
        (
            {"mentor_schedule": "ahead", "mentor_queue_size": 1},
            "batches",
            "mentor_queue_size is 1",
            "mentor_queue_size to 2",
        ),
        (
            {
                "reward_funcs": ["recipes.smoke.rewards.last_number_is_answer", "test_check.never"],
                "mentor_success_rewards": None,
            },
            "rewards load",
            "weighted sum",
            "mentor_success_rewards",
        ),
        (
            {"mentor_deadline": 0.5, "mentor_call_timeout": 0.5, "per_device_train_batch_size": 400},
            "estimate",
            "more than mentor_deadline",
            "mentor_max_concurrency",
        ),
    ],
)
def test_what_may_be_meant_is_a_warning_and_does_not_fail(world, capsys, changes, name, found, fix):
    world.endpoint.delay = 0.05
    done = world.check(capsys, **changes)
    assert done.code == 0, done.at
    assert done.at[name]["level"] == "warn"
    assert found in done.at[name]["found"]
    assert fix in done.at[name]["fix"]


# What is broken


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


@pytest.mark.parametrize(
    ("changes", "name", "found", "fix"),
    [
        ({"mentor_max_tries": 3}, "recipe", "mentor_max_tries", "spelling"),
        ({"mentor_modell": "m"}, "recipe", "mentor_modell", "did you mean mentor_model?"),
        ({"num_generations": "four"}, "recipe", "num_generations", "correct this value"),
        ({"mentor_max_retry": 0}, "settings", "mentor_max_retry must be a positive whole number", "correct"),
        ({"mentor_deadline": 1700}, "deadlines", "ddp_timeout=1800", "mentor_deadline to at most 1620"),
        ({"num_generations": 3}, "batches", "divisible by num_generations (3)", "per_device_train_batch_size: 9"),
        (
            {"num_generations": 16, "per_device_train_batch_size": 2, "num_processes": 4},
            "batches",
            "generation_batch_size (8)",
            "per_device_train_batch_size: 4",
        ),
        ({"dataset_name": "no-such-directory"}, "data", "no-such-directory", "dataset_name"),
        ({"dataset_train_split": "training"}, "data", "no split 'training'", "dataset_train_split"),
        ({"mentor_answer_column": "gold"}, "columns", "mentor_answer_column is 'gold'", "one of ['answer']"),
        (
            {"reward_funcs": ["test_check.wants_a_rubric"], "mentor_success_rewards": None},
            "columns",
            "wants_a_rubric asks for 'rubric'",
            "add the column",
        ),
        ({"mentor_strategy": "luffy"}, "columns", "reads the column 'demonstration'", "add the column"),
        ({"reward_funcs": ["accuracy"]}, "rewards load", "unknown reward 'accuracy'", "accuracy_reward"),
        ({"reward_funcs": ["no_such_module.f"]}, "rewards load", "cannot import", "can be imported"),
        ({"mentor_success_rewards": ["verifier"]}, "rewards load", "'verifier'", "last_number_is_answer"),
        ({"mentor_api_key_env": "NO_SUCH_KEY"}, "key", "NO_SUCH_KEY is not set", "export"),
        ({"mentor_budget": {"run_cost": 5}}, "settings", "run_cost, which needs mentor_prices", "correct"),
        ({"mentor_budget": {"batch_calls": 2}}, "budget", "batch_calls", "at least 3"),
        ({"mentor_leak_rule": "test_check.no_rule"}, "leak rule", "has no 'no_rule'", "dotted path"),
        ({"mentor_leak_rule": "test_check.broken_rule"}, "leak rule", "raised KeyError", "docs/domains.md"),
        ({"mentor_domain": "cooking"}, "templates", "cooking", "docs/domains.md"),
    ],
)
def test_a_broken_set_up_fails_and_names_the_fault_and_the_fix(world, capsys, changes, name, found, fix):
    done = world.check(capsys, **changes)
    assert done.code == 1
    assert done.at[name]["level"] == "fail"
    assert found in done.at[name]["found"]
    assert fix in done.at[name]["fix"]


def test_all_wrong_settings_are_told_at_once(world, capsys):
    wrong = {
        "mentor_max_retry": 0,
        "mentor_preset": "rubust",
        "mentor_temperature": -1,
        "mentor_budget": {"run_cost": 5},
        "mentor_control_fraction": 0.6,
        "mentor_generic_fraction": 0.6,
    }
    done = world.check(capsys, **wrong)
    assert done.code == 1
    said = done.at["settings"]["found"].split("; ")
    assert [part.split()[0] for part in said if part.startswith("mentor_")] == [
        "mentor_preset", "mentor_max_retry", "mentor_temperature", "mentor_budget", "mentor_control_fraction",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reward", "found", "fix"),
    [
        ("never", "no completion made from the reference answer succeeds", "what the verifier compares with"),
        ("always", "'I do not know.' succeeds on all 6 rows", "mentor_success_rewards"),
        ("any_number", "a wrong answer succeeds on all 6 rows", "mentor_success_rewards"),
        ("raising", "raising raised RuntimeError: no grader", "correct the function"),
        ("too_few", "1 values for 6 completions", "correct the function"),
    ],
)
def test_a_success_reward_that_cannot_tell_right_from_wrong_fails(world, capsys, reward, found, fix):
    done = world.check(capsys, reward_funcs=[f"test_check.{reward}"], mentor_success_rewards=[reward])
    assert done.code == 1
    assert done.at["reward"]["level"] == "fail"
    assert found in done.at["reward"]["found"]
    assert fix in done.at["reward"]["fix"]
    assert done.at["replies"]["level"] == "ok"  # the others went on


def test_a_reward_that_never_succeeds_is_shown_with_all_that_was_tried(world, capsys):
    done = world.check(capsys, reward_funcs=["test_check.never"], mentor_success_rewards=["never"])
    tried = done.at["reward"]["figures"]["tried"]
    assert "The answer is \\boxed{7}." in tried
    assert len(tried) == 8
    assert "The answer is 7." in done.at["reward"]["found"]


def test_a_format_reward_that_alone_makes_a_success_fails(world, capsys):
    rewards = ["recipes.smoke.rewards.last_number_is_answer", "test_check.format_reward"]
    done = world.check(capsys, reward_funcs=rewards, mentor_success_rewards=None)
    assert done.code == 1
    assert "mentor_success_rewards" in done.at["reward"]["fix"]


def test_trls_reward_for_conversations_on_plain_text_is_explained(world, capsys):
    world.data = [{"prompt": "What is 1 + 1?", "solution": "$2$", "answer": "2"}]
    done = world.check(capsys, reward_funcs=["accuracy_reward"], mentor_success_rewards=None)
    assert done.code == 1
    assert "accuracy_reward raised TypeError" in done.at["reward"]["found"]
    assert "list of messages" in done.at["reward"]["fix"]


def test_a_data_set_without_prompts_fails(world, capsys):
    world.data = [{"question": "What is 1 + 1?", "answer": "2"}]
    done = world.check(capsys)
    assert done.code == 1
    assert "no column 'prompt' among ['question', 'answer']" in done.at["columns"]["found"]
    assert "rename" in done.at["columns"]["fix"]


def test_a_conversation_without_a_user_turn_fails(world, capsys):
    world.data = [{"prompt": [{"role": "system", "content": "Add."}], "answer": "2"}]
    done = world.check(capsys)
    assert done.code == 1
    assert "no user turn" in done.at["columns"]["found"]
    assert "at least one user turn" in done.at["columns"]["fix"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{% block user %}\n{{ question }}\n{% endblok %}", "math/judgment.jinja, line 3"),
        ("{% block user %}{{ question }} {{ draft }} {{ atempts }}{% endblock %}", "unknown slot 'atempts'"),
        ("{% block user %}{{ question }}{% endblock %}", "does not show slot 'draft'"),
    ],
)
def test_a_bad_template_fails_and_names_file_and_fault(world, capsys, text, found):
    folder = world.folder / "templates" / "math"
    folder.mkdir(parents=True)
    (folder / "judgment.jinja").write_text(text, encoding="utf-8")
    done = world.check(capsys, mentor_templates_dir=str(folder.parent))
    assert done.code == 1
    assert found in done.at["templates"]["found"]
    assert "math/judgment.jinja" in done.at["templates"]["found"]
    assert "correct the file" in done.at["templates"]["fix"]


def test_a_dead_url_fails_and_the_checks_that_need_it_are_skipped(world, capsys):
    url = closed_port()
    done = world.check(capsys, mentor_base_url=url)
    assert done.code == 1
    assert f"{url} cannot be reached" in done.at["endpoint"]["found"]
    assert "start the server" in done.at["endpoint"]["fix"]
    assert {done.at[name]["level"] for name in ("model", "replies", "speed", "estimate")} == {"skipped"}
    assert done.at["reward"]["level"] == "ok"


def test_one_dead_url_of_two_is_named(world, capsys):
    url = closed_port()
    done = world.check(capsys, mentor_base_url=f"{world.endpoint.url},{url}")
    assert done.code == 1
    assert url in done.at["endpoint"]["found"]
    assert world.endpoint.url not in done.at["endpoint"]["found"]


def test_a_url_that_answers_with_a_web_page_fails_and_shows_the_likely_one(world, capsys):
    done = world.check(capsys, mentor_base_url=world.endpoint.root)
    assert done.code == 1
    assert "HTML instead of JSON" in done.at["endpoint"]["found"]
    assert world.endpoint.url in done.at["endpoint"]["fix"]


def test_a_wrong_model_name_fails_and_the_served_ones_are_named(world, capsys):
    world.endpoint.models = ["mentor", "another"]
    done = world.check(capsys, mentor_model="mentro")
    assert done.code == 1
    assert "does not serve 'mentro'" in done.at["model"]["found"]
    assert "set mentor_model to one that is served: mentor, another" in done.at["model"]["fix"]


def test_a_wrong_model_name_fails_where_models_are_not_listed(world, capsys):
    world.endpoint.models = None
    done = world.check(capsys, mentor_model="mentro")
    assert done.code == 1
    assert "mentro does not reply" in done.at["model"]["found"]
    assert "mentor_model" in done.at["model"]["fix"]


def test_a_mentor_that_is_too_slow_for_the_deadline_fails(world, capsys):
    world.endpoint.delay = 0.2
    done = world.check(capsys, mentor_deadline=0.45, mentor_call_timeout=0.45)
    assert done.code == 1
    assert "too slow for mentor_deadline 0.45" in done.at["speed"]["found"]
    assert "raise mentor_deadline" in done.at["speed"]["fix"]


def test_thinking_that_uses_up_the_tokens_fails_and_the_limit_is_named(world, capsys):
    world.endpoint.finish_reason, world.endpoint.thinking = "length", True
    done = world.check(capsys)
    assert done.code == 1
    assert "the thinking uses up mentor_max_tokens" in done.at["replies"]["found"]
    assert "raise mentor_max_tokens (192), or turn thinking off" in done.at["replies"]["fix"]


def test_rows_without_what_the_strategy_reads_are_a_warning(world, capsys):
    world.data = [row | {"hint": "Count on." if number else None} for number, row in enumerate(world.data)]
    done = world.check(capsys, mentor_strategy="static_hint")
    assert (done.code, done.at["columns"]["level"]) == (0, "warn")
    assert "'hint' has nothing to use in row(s) [0]" in done.at["columns"]["found"]


def test_answers_that_no_one_reads_are_not_asked_for_and_hide_no_other_warning(world, capsys):
    world.data = [{"prompt": row["prompt"], "tag": "sum", "hint": None} for row in rows()]
    reward = {"reward_funcs": ["think_format_reward"], "mentor_success_rewards": None, "mentor_answer_column": None}
    done = world.check(capsys, mentor_strategy="static_hint", **reward).at["columns"]
    assert done["level"] == "warn"
    assert "'hint' has nothing to use in row(s) [0, 1, 2, 3, 4, 5]" in done["found"]
    assert "answer" not in done["found"] + done["fix"]
    done = world.check(capsys, **reward).at["columns"]
    assert "the mentor works without the answer" in done["found"]


def test_an_answer_is_read_from_the_column_in_which_the_training_finds_it(world, capsys):
    world.data = [
        {"prompt": row["prompt"], "answer": None if i % 2 else row["answer"], "solution": row["answer"]}
        for i, row in enumerate(rows())
    ]
    done = world.check(capsys, mentor_answer_column=None)
    assert done.at["columns"]["level"] == "ok"
    assert "answers are in 'answer' or 'solution'" in done.at["columns"]["found"]


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, "fail"),
        ({"mentor_ablation": "no_judge"}, "ok"),
        ({"mentor_strategy": "resample"}, "skipped"),
    ],
)
def test_a_budget_is_measured_by_the_calls_that_one_hint_takes(world, capsys, changes, level):
    assert world.check(capsys, mentor_budget={"batch_calls": 2}, **changes).at["budget"]["level"] == level


def test_steps_that_cannot_be_skipped_are_refused_as_the_trainer_would(world, capsys):
    done = world.check(capsys, mentor_skip_empty_steps=True, optim="lomo")
    assert done.at["options"]["level"] == "fail"
    assert "mentor_skip_empty_steps cannot keep weights as they are with optim='lomo'" in done.at["options"]["found"]


def test_a_strategy_without_hints_is_not_measured_by_prompts_with_a_hint(world, capsys):
    policy = world.folder / "policy"
    tiny.tokenizer().save_pretrained(policy)
    tiny.model().config.save_pretrained(policy)
    given = {"model_name_or_path": str(policy), "max_completion_length": 80, "mentor_leak_rule": "a.b"}
    done = world.check(capsys, mentor_strategy="none", **given)
    assert (done.at["context"]["level"], "with a long hint" in done.at["context"]["found"]) == ("ok", False)
    assert done.at["leak rule"]["found"] == "no mentor writes hints"
    done = world.check(capsys, **given | {"mentor_leak_rule": None})
    assert (done.at["context"]["level"], "with a long hint" in done.at["context"]["found"]) == ("warn", True)


def test_replies_that_are_cut_off_without_thinking_are_a_warning(world, capsys):
    world.endpoint.finish_reason = "length"
    done = world.check(capsys)
    assert done.code == 0
    assert done.at["replies"]["level"] == "warn"
    assert "raise mentor_max_tokens (192)" in done.at["replies"]["fix"]


def test_replies_that_nobody_can_read_are_a_warning_that_says_what_training_will_do(world, capsys):
    world.endpoint.nonsense = True
    done = world.check(capsys)
    assert done.code == 0  # training works, with the fixed hint
    assert done.at["replies"]["level"] == "warn"
    assert "no reply could be read" in done.at["replies"]["found"]
    assert "stronger mentor" in done.at["replies"]["fix"]


def test_a_prompt_that_does_not_fit_into_the_context_fails(world, capsys):
    policy = world.folder / "policy"
    tiny.tokenizer().save_pretrained(policy)
    tiny.model().config.save_pretrained(policy)
    done = world.check(capsys, model_name_or_path=str(policy), max_completion_length=125)
    assert done.code == 1
    assert "room for 3 of 128" in done.at["context"]["found"]
    assert "lower max_completion_length" in done.at["context"]["fix"]


def test_a_local_mentor_under_zero3_is_refused_as_the_trainer_would(world, capsys):
    launch = Path(__file__).parents[1] / "accelerate_configs" / "zero3.yaml"
    options = {"mentor_backend": "transformers", "mentor_base_url": None, "mentor_api_key_env": None}
    done = world.check(capsys, "--config_file", str(launch), "--world-size", "1", **options)
    assert done.code == 1
    assert "ZeRO-3" in done.at["options"]["found"]
    assert "loaded by the training itself" in done.at["endpoint"]["found"]


def test_a_vllm_mentor_beside_a_colocated_engine_is_refused_as_the_trainer_would(world, capsys):
    options = {"mentor_backend": "vllm", "mentor_base_url": None, "mentor_api_key_env": None}
    done = world.check(capsys, use_vllm=True, vllm_mode="colocate", **options)
    assert done.code == 1
    assert "colocate" in done.at["options"]["found"]


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_a_vllm_mentor_may_be_checked_where_vllm_is_not_installed(world, capsys):
    done = world.check(capsys, mentor_backend="vllm", mentor_base_url=None, mentor_api_key_env=None)
    assert done.code == 0
    assert done.at["options"]["level"] == "warn"
    assert "where the training runs" in done.at["options"]["fix"]


def test_a_failure_is_readable_and_cannot_steer_the_terminal(world, capsys):
    recipe = world.recipe(reward_funcs=["test_check.raising"], mentor_success_rewards=["raising"])
    assert main(["check", "--config", str(recipe)]) == 1
    printed = capsys.readouterr().out
    assert "\x1b[31m here" not in printed
    assert "no grader \\x1b[31m here" in " ".join(printed.split())
    last = printed.strip().splitlines()
    assert last[-1].startswith("not ready, 1 failure: ")
    assert any(line.lstrip().startswith("to do: correct the function") for line in last[-8:])


def test_a_key_that_an_endpoint_says_back_is_not_shown(world, capsys):
    flags = ("--policy-url", world.endpoint.url, "--policy-key-env", KEY_NAME)
    done = world.check(capsys, *flags, "--policy-model", "parrot", mentor_model="parrot")
    assert done.code == 1
    for name in ("model", "collapse"):
        assert "xxx" in done.at[name]["found"]
        assert KEY[:8] not in done.at[name]["found"]


def test_a_policy_that_is_not_served_fails_and_its_flags_are_named(world, capsys):
    done = world.check(capsys, "--policy-url", world.endpoint.url, "--policy-model", "nobody")
    assert done.code == 1
    assert "The model nobody does not exist" in done.at["collapse"]["found"]
    assert "--policy-model" in done.at["collapse"]["fix"]
    assert done.at["replies"]["level"] == "ok"


# A command that is used wrongly


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "no recipe"),
        (["--config"], "--config needs the path"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--config", "r.yaml", "--policy-url", "http://x/v1"], "go together"),
    ],
)
def test_a_wrong_command_is_one_line_and_exit_code_2(capsys, words, complaint):
    assert main(["check", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert complaint in line


def test_a_recipe_that_is_no_yaml_fails_alone(tmp_path, capsys):
    file = tmp_path / "recipe.yaml"
    file.write_text("a: [1, 2", encoding="utf-8")
    assert main(["check", "--config", str(file), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["name"], finding["level"]) == ("recipe", "fail")


@pytest.mark.parametrize(
    ("levels", "verdict"),
    [
        ([Level.OK, Level.SKIPPED], "ready: 1 ok, 1 skipped"),
        ([Level.OK, Level.WARN, Level.WARN], "ready, but see 2 warnings: 1 ok, 2 warn"),
        ([Level.FAIL, Level.WARN], "not ready, 1 failure: 1 warn, 1 fail"),
    ],
)
def test_the_verdict_is_one_line_and_what_was_skipped_is_another(capsys, levels, verdict):
    show_findings([Finding(f"check {n}", level, f"found {n}", "fix") for n, level in enumerate(levels)], Console())
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[-1] == verdict
    assert [line for line in lines if "skipped" in line and line != verdict] == [
        f"skipped: check {n} (found {n})" for n, level in enumerate(levels) if level is Level.SKIPPED
    ]

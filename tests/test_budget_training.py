"""Whole training runs: within a budget, with it spent, resumed, and replayed from the cache with the endpoint gone."""

from __future__ import annotations

import json
import shutil
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import said
import tiny

from trl_mentor import read_journal
from trl_mentor.errors import ConfigError
from trl_mentor.records import EventKind, HintOrigin
from trl_mentor.reply_cache import CACHE_DIR

USAGE = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}


def replies(number):
    """What the endpoint says by the field that it is asked for: another hint each time."""
    hint = f"w30 w31 w{number % 40}"
    return {
        "misconceptions": said.diagnosis("confuses w1 with w2"),
        "verdict": said.verdict("HIGH"),
        "hint": said.repaired(hint),
        None: hint,
    }


@contextmanager
def endpoint():
    state = SimpleNamespace(requests=0, lock=threading.Lock())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with state.lock:
                state.requests += 1
                number = state.requests
            schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
            field = next((name for name in ("misconceptions", "verdict", "hint") if name in str(schema)), None)
            choice = {"index": 0, "message": {"role": "assistant", "content": replies(number)[field]}}
            data = json.dumps({"choices": [{**choice, "finish_reason": "stop"}], "usage": USAGE}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    state.url = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def trainer(output_dir, url, **options):
    """Two groups of four collapse in each step."""
    return tiny.trainer(
        output_dir,
        reward=tiny.HardAmongEasyFail(),
        mentor=None,
        mentor_model="served",
        mentor_base_url=url,
        mentor_attempt_budget=2_000,
        **{"max_steps": 2, **options},
    )


def trained(*args, **options):
    made = trainer(*args, **options)
    made.train()
    return made


def hints(output_dir):
    return [(item.step, item.group.question, item.guidance.hint) for item in read_journal(output_dir)]


def origins(output_dir):
    return [item.guidance.origin for item in read_journal(output_dir)]


def test_a_run_whose_budget_is_spent_trains_on_without_hints_and_says_so_once(tmp_path, caplog):
    with endpoint() as server:
        made = trained(tmp_path, server.url, max_steps=4, mentor_budget='{"run_calls": 10}')
    assert server.requests == made.mentor_totals.calls == 9
    assert [entry["step"] for entry in made.state.log_history if "loss" in entry] == [1, 2, 3, 4]
    assert origins(tmp_path) == [HintOrigin.ACCEPTED] * 3 + [HintOrigin.NOT_ASKED] * 5
    assert made.mentor_totals.not_asked == 5
    (event,) = read_journal(tmp_path).events
    assert (event.kind, event.step) == (EventKind.BUDGET_SPENT, 1)
    assert caplog.text.count("training goes on without hints") == 1


def test_money_is_counted_at_the_prices_of_the_settings(tmp_path):
    prices = {"prompt": 1.0, "completion": 10.0}  # of which a call takes 0.00019
    with endpoint() as server:
        made = trained(tmp_path, server.url, mentor_budget={"run_cost": 0.0011}, mentor_prices=prices)
    assert made.mentor_totals.calls == server.requests == 6


def test_a_run_that_is_stopped_and_resumed_does_not_spend_twice(tmp_path):
    options = {
        "mentor_budget": {"run_calls": 9},
        "mentor_cache_dir": "none",
        "save_strategy": "steps",
        "save_steps": 1,
    }
    with endpoint() as server:
        trained(tmp_path, server.url, **options)
        assert server.requests == 9
        resumed = trainer(tmp_path, server.url, **options, max_steps=4)
        resumed.train(resume_from_checkpoint=True)
        assert (server.requests, resumed.mentor_totals.calls) == (9, 9)
        assert origins(tmp_path) == [HintOrigin.ACCEPTED] * 3 + [HintOrigin.NOT_ASKED] * 5
        trained(tmp_path, server.url, **options)  # a new run has its budget anew
        assert server.requests == 18
    assert not (tmp_path / CACHE_DIR).exists()


def test_a_repeated_run_gets_the_same_hints_with_the_endpoint_gone(tmp_path):
    with endpoint() as server:
        first = trained(tmp_path, server.url)
    assert (server.requests, first.mentor_totals.calls, first.mentor_totals.replayed) == (12, 12, 0)
    before = hints(tmp_path)
    again = trained(tmp_path, server.url)  # a request would fail, and count
    assert hints(tmp_path) == before
    assert len({hint for _, _, hint in before}) > 1
    assert (again.mentor_totals.calls, again.mentor_totals.replayed) == (0, 12)
    assert (again.mentor_totals.mentor_tokens, again.mentor_totals.accepted) == (0, 4)
    assert [tiny.rows(batch) for batch in again.batches] == [tiny.rows(batch) for batch in first.batches]


def test_a_step_that_a_resumed_run_does_again_is_replayed_and_new_ones_are_asked(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 1}
    with endpoint() as server:
        trained(tmp_path, server.url, **saving)
        before = hints(tmp_path)
        shutil.rmtree(tmp_path / "checkpoint-2")
        resumed = trainer(tmp_path, server.url, **saving, max_steps=3)
        resumed.train(resume_from_checkpoint=True)
    assert hints(tmp_path)[:4] == before
    assert server.requests == 18
    assert (resumed.mentor_totals.calls, resumed.mentor_totals.replayed) == (12, 6)


def test_another_temperature_is_another_run_and_a_cache_may_be_shared(tmp_path):
    shared = {"mentor_cache_dir": str(tmp_path / "shared"), "max_steps": 1}
    with endpoint() as server:
        trained(tmp_path / "a", server.url, **shared)
        trained(tmp_path / "b", server.url, **shared)
        assert server.requests == 6
        trained(tmp_path / "c", server.url, **shared, mentor_temperature=0.1)
        assert server.requests == 12
    assert hints(tmp_path / "a") == hints(tmp_path / "b")


def test_background_mentoring_keeps_to_the_budget_of_the_run_and_its_lessons_are_on_the_bill_of_a_resumed_one(
    tmp_path,
):
    options = {
        "mentor_schedule": "ahead",
        "save_strategy": "steps",
        "save_steps": 2,
        "mentor_budget": {"run_calls": 9},
    }
    with endpoint() as server:
        made = trainer(tmp_path, server.url, **options)
        made.train()
        wait_until(lambda: server.requests == 9)
        wait_until(lambda: not made.schedule.queue._busy)
        made._save_checkpoint(made.model, trial=None)
        shutil.rmtree(tmp_path / CACHE_DIR)
        resumed = trainer(tmp_path, server.url, **options, max_steps=5)
        resumed.train(resume_from_checkpoint=True)
        wait_until(lambda: not resumed.schedule.queue._busy)
        assert server.requests == 9


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_limits_by_batch_are_refused_for_a_mentor_that_works_ahead(tmp_path):
    with pytest.raises(ConfigError, match="use run_calls"):
        tiny.trainer(tmp_path, mentor=tiny.mentor(budget={"batch_calls": 9}), mentor_schedule="ahead")


def test_settings_of_budget_and_cache_are_refused_beside_a_mentor_that_does_not_look_at_them(tmp_path):
    for setting in ({"mentor_budget": {"run_calls": 9}}, {"mentor_cache_dir": "here"}):
        with pytest.raises(ConfigError, match=next(iter(setting))):
            tiny.trainer(tmp_path, **setting)

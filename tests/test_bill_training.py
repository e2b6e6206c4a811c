"""The bill of whole training runs adds up: against the policy's generations and against what a server counted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import said
import tiny
from transformers import TrainerCallback

from trl_mentor import MentorCallback, read_journal
from trl_mentor.bill import Bill
from trl_mentor.counters import Counters
from trl_mentor.plain import from_plain
from trl_mentor.records import Usage
from trl_mentor.spending import RoleSpending
from trl_mentor.uplift import uplift

FIELDS = {"misconceptions": "attribution", "verdict": "judgment", "hint": "repair"}
GOOD = {
    "attribution": said.diagnosis("confuses w1 with w2"),
    "judgment": said.verdict("HIGH"),
    "repair": said.repaired(tiny.HINT),
    "generation": tiny.HINT,
}


class Server:
    """Answers as a chat endpoint and counts by role what it is asked and what usage it reports.

    `faults` says by the number of a request what goes wrong: `429`, `dropped` (the connection is closed without an
    answer), `hangs`, `useless` (content of a wrong type), `unreadable` (not the form that the role is asked for),
    `cut` (the token limit).
    """

    def __init__(self, faults=None, *, latency=0.0) -> None:
        self.faults, self.latency = faults or {}, latency
        self.counted: dict[str, RoleSpending] = {}
        self.asked = 0
        self.lock, self.end = threading.Lock(), threading.Event()

    def answer(self, body):
        """Status and body of the answer, None for none."""
        schema = str(body.get("response_format", ""))
        role = next((role for field, role in FIELDS.items() if f"'{field}'" in schema), "generation")
        with self.lock:
            self.asked += 1
            number, fault = self.asked, self.faults.get(self.asked)
            usage = Usage(100 + number, 10 + number % 7, number % 5, number % 3)
            reported = Usage() if fault in ("429", "dropped", "hangs") else usage
            tokens = {f.name: getattr(reported, f.name) for f in fields(Usage)}
            self.counted[role] = self.counted.get(role, RoleSpending()) + RoleSpending(calls=1, **tokens)
        if fault == "hangs":
            self.end.wait(60)
        if fault in ("hangs", "dropped"):
            return None
        time.sleep(self.latency)
        if fault == "429":
            return 429, {"error": {"message": "slow down"}}
        content = {"useless": [1, 2], "unreadable": "no form at all", "cut": "The answer"}.get(fault, GOOD[role])
        choice = {"index": 0, "message": {"role": "assistant", "content": content}}
        return 200, {
            "choices": [{**choice, "finish_reason": "length" if fault == "cut" else "stop"}],
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
                "completion_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
            },
        }


@contextmanager
def serving(server):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            answered = server.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if answered is None:
                self.close_connection = True
                return
            status, body = answered
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1"
    finally:
        server.end.set()
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
        mentor_cache_dir="none",
        mentor_max_concurrency=1,
        **{"max_steps": 2, **options},
    )


def counts(roles):
    """Calls and tokens by role, as a server counts them."""
    names = ("calls", *(f.name for f in fields(Usage)))
    return {role: {name: getattr(spent, name) for name in names} for role, spent in roles.items() if spent.calls}


def saved_totals(checkpoint):
    saved = json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"]["MentorCallback"]
    return from_plain(Counters, saved["attributes"]["totals"])


STRATEGIES = {
    "none": {"mentor_strategy": "none"},
    "resample": {"mentor_strategy": "resample"},
    "mentor": {},
    "control": {"mentor_control_fraction": 0.5},
    "generic": {"mentor_control_fraction": 0.2, "mentor_generic_fraction": 0.3},
    "probes": {"mentor_probe_steps": 1},
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_tokens_of_the_policy_are_those_that_it_generated_whatever_the_strategy(tmp_path, name):
    options = {"mentor": tiny.mentor()} if "mentor_strategy" not in STRATEGIES[name] else {}
    made = tiny.trainer(tmp_path, reward=tiny.HardAmongEasyFail(), max_steps=4, **options, **STRATEGIES[name])
    output = made.train()
    bill = Bill.of(made.mentor_totals, priced=False)
    assert bill.policy_tokens == made.generated == output.metrics["mentor/bill/policy_tokens"]
    assert (bill.reroll_tokens + bill.control_tokens > 0) == (name != "none")
    assert (bill.control_tokens > 0) == (name in ("control", "generic"))
    assert (bill.probe_tokens > 0) == (name == "probes")
    assert bill.padding_tokens == 0
    first = sum(len(ids) for batch in made.batches[:1] for _, ids in tiny.rows(batch))
    assert bill.first_roll_tokens > first / 2


def test_the_mentor_took_what_its_server_counted_whatever_went_wrong(tmp_path):
    server = Server({2: "429", 4: "dropped", 6: "useless", 9: "unreadable", 12: "hangs", 14: "cut", 17: "429"})
    with serving(server) as url:
        prices = {"prompt": 2, "cached": 0.25, "completion": 9}
        made = trainer(tmp_path, url, max_steps=4, mentor_call_timeout=4.0, mentor_prices=prices)
        output = made.train()
    spent = made.mentor_totals.mentor
    assert server.asked > 17
    assert counts(spent.roles) == counts(server.counted)
    assert spent.total.errors >= 7
    assert spent.total.retries >= 4  # after 429 twice and the lost connection, and for the reply that was unreadable
    served = sum(server.counted.values(), RoleSpending())
    new = served.prompt_tokens - served.cached_tokens
    assert served.cached_tokens
    assert spent.cost == pytest.approx((2 * new + 0.25 * served.cached_tokens + 9 * served.completion_tokens) / 1e6)
    assert output.metrics["mentor/bill/cost"] == read_journal(tmp_path).bill.cost == spent.cost


def test_the_budget_of_a_run_counts_the_calls_that_the_bill_counts(tmp_path):
    server = Server({1: "429", 2: "429"})
    with serving(server) as url:
        made = trainer(tmp_path, url, max_steps=4, mentor_budget={"run_calls": 9})
        made.train()
    totals = made.mentor_totals
    assert server.asked == totals.calls == 8  # the next hint takes three
    assert (totals.accepted, totals.not_asked) == (2, 6)


def test_what_the_background_asked_for_lessons_that_nobody_used_is_in_the_bill(tmp_path):
    server = Server(latency=0.1)
    with serving(server) as url:
        made = trainer(tmp_path, url, mentor_schedule="ahead", max_steps=3)
        made.train()
        asked = server.asked
        assert made.schedule.queue.state()  # still waiting for a lesson or a place
        assert counts(made.mentor_totals.mentor.roles) == counts(server.counted)
        time.sleep(0.3)
        assert server.asked == asked


def test_two_endpoints_of_which_one_fails_are_billed_for_what_both_were_asked(tmp_path):
    down, up = Server(dict.fromkeys(range(1, 99), "useless")), Server()
    with serving(down) as first, serving(up) as second:
        made = trainer(tmp_path, f"{first},{second}", max_steps=2, mentor_pause_after=3)
        made.train()
    both = {role: down.counted.get(role, RoleSpending()) + spent for role, spent in up.counted.items()}
    assert down.asked
    assert counts(made.mentor_totals.mentor.roles) == counts(both)


KILLED = """
import os, signal, sys
import tiny
from test_bill_training import trainer
from transformers import TrainerCallback

class KillItself(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            os.kill(os.getpid(), signal.SIGKILL)

made = trainer(sys.argv[1], sys.argv[2], max_steps=4, save_strategy="steps", save_steps=2)
made.add_callback(KillItself())
made.train()
"""


def test_a_run_that_was_killed_and_resumed_accounts_for_all_that_its_server_counted(tmp_path):
    server = Server()
    with serving(server) as url:
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), url],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
        before = counts(server.counted)
        resumed = trainer(tmp_path, url, max_steps=4, save_strategy="steps", save_steps=2)
        resumed.train(resume_from_checkpoint=True)
    journal = read_journal(tmp_path)
    assert counts((journal.totals.mentor + journal.repeated.mentor).roles) == counts(server.counted)
    assert before != counts(server.counted)
    assert journal.repeated.batches == 1
    assert journal.repeated.mentor.total.calls == 6
    assert counts(resumed.mentor_totals.mentor.roles) == counts(journal.totals.mentor.roles)


def booked(counters):
    """All counts, to the unit; seconds are floats, whose sum depends on its order."""
    whole = {f.name: getattr(counters, f.name) for f in fields(Counters)}
    return {
        **{name: value for name, value in whole.items() if isinstance(value, int)},
        **counts(counters.mentor.roles),
    }


@pytest.mark.parametrize("schedule", ["inline", "ahead"])
def test_bookings_trainer_and_checkpoint_agree(tmp_path, schedule):
    with serving(Server(latency=0.05)) as url:
        made = trainer(tmp_path, url, max_steps=2, mentor_schedule=schedule, save_strategy="steps", save_steps=1)
        made.train()
        journal, totals = read_journal(tmp_path), made.mentor_totals
        assert booked(journal.totals) == booked(totals)
        assert journal.totals.seconds == pytest.approx(totals.seconds)
        until = sum((item.counters for item in journal.bookings if item.step < 1), Counters())
        assert booked(saved_totals(tmp_path / "checkpoint-1")) == booked(until)
        resumed = trainer(tmp_path, url, max_steps=3, mentor_schedule=schedule)
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    again = read_journal(tmp_path)
    assert booked(again.totals) == booked(resumed.mentor_totals)
    assert again.repeated.batches == 1


@pytest.mark.parametrize("schedule", ["inline", "ahead"])
def test_seconds_are_waited_inline_and_hidden_ahead(tmp_path, schedule):
    class Slow(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            time.sleep(0.5)

    server = Server(latency=0.1)
    with serving(server) as url:
        made = trainer(tmp_path, url, max_steps=4, mentor_schedule=schedule)
        made.add_callback(Slow())
        made.train()
    totals = made.mentor_totals
    bill = Bill.of(totals, priced=False)
    assert bill.waited_seconds + bill.reroll_seconds <= bill.seconds
    assert bill.waited_seconds + bill.hidden_seconds >= server.asked * 0.1  # one after the other, whoever waits
    assert totals.mentor.busy_seconds <= bill.seconds
    if schedule == "inline":
        assert bill.waited_seconds > 24 * 0.1  # 4 steps of 2 groups of 3 calls, one after the other
        assert bill.hidden_seconds < 0.1 * bill.waited_seconds
    else:
        assert bill.hidden_seconds > bill.waited_seconds


class Interrupted(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            raise KeyboardInterrupt


def test_a_run_that_is_interrupted_leaves_its_bill_in_the_journal(tmp_path):
    server = Server()
    with serving(server) as url:
        made = trainer(tmp_path, url, max_steps=4)
        made.add_callback(Interrupted())
        with pytest.raises(KeyboardInterrupt):
            made.train()
    assert booked(read_journal(tmp_path).totals) == booked(made.mentor_totals)
    assert counts(read_journal(tmp_path).totals.mentor.roles) == counts(server.counted)
    assert not (tmp_path / "train_results.json").exists()


def test_training_ends_with_the_bill_in_a_table_in_a_file_and_in_the_metrics(tmp_path, capsys):
    made = tiny.trainer(tmp_path, max_steps=3, mentor_control_fraction=0.4)
    output = made.train()
    printed = capsys.readouterr().out
    table = printed.partition("What the run took")[2]
    assert re.search(rf"\| policy tokens +\| {made.generated:,} ", table)
    assert "hint withheld" in table.partition("Groups that recovered")[2]
    written = json.loads((tmp_path / "train_results.json").read_text())
    assert written == output.metrics
    assert written["mentor/bill/mentor_calls"] == made.mentor_totals.calls == 18
    assert written["mentor/total/uplift"] == uplift(made.mentor_totals.recovery).difference
    assert all(isinstance(value, int | float) for value in written.values())
    assert not (tmp_path / "all_results.json").exists()


def test_without_progress_no_table_is_printed(tmp_path, capsys):
    tiny.trained(tmp_path, cls=partial(tiny.Recorder, callbacks=[MentorCallback(progress=False)]))
    assert "What the run took" not in capsys.readouterr().out

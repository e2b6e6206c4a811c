"""A real endpoint in a process of its own is killed while `trainer.train()` asks it, and comes back later."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest
import tiny
from transformers import TrainerCallback

from trl_mentor import Mentor, OpenAIBackend, read_journal
from trl_mentor.records import EventKind, HintOrigin

SERVER = """
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, die_at, replies = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
asked = []

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked.append(body)
        if len(asked) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        role = body.get("response_format", {}).get("json_schema", {}).get("name", "generation")
        message = {"role": "assistant", "content": replies[role]}
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m",
                 "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
"""Plays the four agents on a port (0: any); sends itself SIGKILL in the middle of the request of a given number."""

REPLIES = {
    "attribution": json.dumps({"misconceptions": ["confuses w1 with w2"]}),
    "generation": tiny.HINT,
    "judgment": json.dumps({"critique": "fine", "verdict": "HIGH"}),
    "repair": json.dumps({"hint": tiny.HINT}),
}


class Server:
    """The process of an endpoint; the port stays when it is started again."""

    def __init__(self) -> None:
        self.port, self.process = 0, None

    def start(self, *, die_at: int = 0) -> None:
        command = [sys.executable, "-c", SERVER, str(self.port), str(die_at), json.dumps(REPLIES)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def stop(self) -> int:
        """End the process if it still runs; how it ended."""
        self.process.kill()
        self.process.stdout.close()
        return self.process.wait(10)


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made = Server()
    yield made
    made.stop()


class BackAtStep(TrainerCallback):
    """Starts the endpoint again before a step; from then on there is some time between the steps."""

    def __init__(self, server: Server, step: int) -> None:
        self.server, self.step, self.ended = server, step, None

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.ended = self.server.stop()
            self.server.start()
        if state.global_step >= self.step:
            time.sleep(0.4)


def test_training_outlives_an_endpoint_that_is_killed_and_uses_it_again_when_it_is_back(tmp_path, server, caplog):
    caplog.set_level(logging.INFO, logger="trl_mentor")
    server.start(die_at=8)  # in the middle of the second step: two groups a step, three calls a group
    backend = OpenAIBackend("m", base_url=f"http://127.0.0.1:{server.port}/v1", max_retries=0)
    back = BackAtStep(server, step=5)
    with closing(backend):
        mentor = Mentor(backend, call_timeout=20.0, pause_after=2, pause_seconds=0.1)
        trainer = tiny.trainer(tmp_path, mentor=mentor, reward=tiny.HardRowsFail(rerolls=False), max_steps=8)
        trainer.add_callback(back)
        trainer.train()

    assert back.ended == -signal.SIGKILL
    assert trainer.state.global_step == 8
    journal = read_journal(tmp_path)
    assert [record.step for record in journal] == [step for step in range(8) for _ in range(2)]
    origins = {step: {record.guidance.origin for record in journal if record.step == step} for step in range(8)}
    assert origins[0] == origins[7] == {HintOrigin.ACCEPTED}
    assert set.union(*(origins[step] for step in (1, 2, 3, 4))) - {HintOrigin.ACCEPTED} == {
        HintOrigin.FAILED, HintOrigin.NOT_ASKED,
    }  # fmt: skip
    assert not any(HintOrigin.ACCEPTED in origins[step] for step in (2, 3, 4))
    paused = [record for record in journal if record.guidance.origin is HintOrigin.NOT_ASKED]
    assert all("mentoring is paused: " in record.guidance.reason for record in paused)
    assert not any(record.guidance.calls for record in paused)

    opened, closed = journal.events
    assert (opened.kind, closed.kind) == (EventKind.PAUSED, EventKind.RESUMED)
    assert opened.step == 1
    assert closed.step >= 5
    said = [record.message for record in caplog.records if record.name == "trl_mentor.events"]
    assert said == [f"trl-mentor: {opened.text}", f"trl-mentor: {closed.text}"]
    assert str(server.port) in opened.text


def test_another_endpoint_stands_in_for_one_that_is_killed_and_no_group_goes_without_a_hint(tmp_path, server):
    other = Server()
    other.start()
    server.start(die_at=3)
    urls = [f"http://127.0.0.1:{each.port}/v1" for each in (server, other)]
    try:
        trainer = tiny.trainer(
            tmp_path, mentor=None, reward=tiny.HardRowsFail(rerolls=False), max_steps=4, mentor_model="m",
            mentor_base_url=",".join(urls), mentor_pause_after=1, mentor_pause_seconds=60, mentor_cache_dir="none",
        )  # fmt: skip
        trainer.train()
    finally:
        other.stop()
    journal = read_journal(tmp_path)
    assert [record.guidance.origin for record in journal] == [HintOrigin.ACCEPTED] * 8
    answered = [{call.endpoint for call in record.guidance.calls if not call.error} for record in journal]
    assert set.union(*answered[:2]) == set(urls)
    assert set.union(*answered[6:]) == {urls[1]}
    (event,) = journal.events
    assert urls[0] in event.text
    assert "the other endpoints stand in" in event.text

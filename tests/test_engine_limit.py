"""What a trainer learns about the length that its engine takes; real engines are asked in `tests/vllm_engine`."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from trl_mentor.engine_limit import engine_limit

ANSWERS = {
    "says": (200, {"data": [{"id": "policy", "max_model_len": 2048}]}),
    "says nothing": (200, {"data": [{"id": "policy"}]}),
    "does not know the question": (404, {"detail": "Not Found"}),
    "says nonsense": (200, {"data": []}),
    "says a word": (200, {"data": [{"max_model_len": "long"}]}),
}


@pytest.fixture
def server(request):
    code, body = ANSWERS[request.param]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


class Session:
    """The one method of an HTTP session that is used."""

    @staticmethod
    def get(url: str, timeout: float) -> SimpleNamespace:
        try:
            with urllib.request.urlopen(url, timeout=timeout) as response:
                body = response.read()
            return SimpleNamespace(status_code=200, json=lambda: json.loads(body))
        except urllib.error.HTTPError as error:
            error.close()
            return SimpleNamespace(status_code=error.code)


def trainer(url: str, *, length: int | None, main: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        use_vllm=True,
        vllm_mode="server",
        args=SimpleNamespace(vllm_max_model_length=length),
        accelerator=SimpleNamespace(is_main_process=main),
        vllm_generation=SimpleNamespace(vllm_client=SimpleNamespace(session=Session, base_url=url)),
    )


@pytest.mark.parametrize(
    ("server", "length", "limit"),
    [("says", None, 2048), ("says", 1024, 1024), ("says", 4096, 2048), ("says nothing", 1024, 1024)],
    indirect=["server"],
)
def test_the_lower_of_setting_and_server_counts(server, length, limit):
    assert engine_limit(trainer(server, length=length)) == limit


@pytest.mark.parametrize(
    "server", ["says nothing", "does not know the question", "says nonsense", "says a word"], indirect=True
)
def test_a_server_that_does_not_say_is_warned_about_where_no_setting_says_either(server, caplog):
    assert engine_limit(trainer(server, length=None)) is None
    assert "Set vllm_max_model_length" in caplog.text


def test_other_ranks_do_not_ask_the_server(caplog):
    assert engine_limit(trainer("http://127.0.0.1:1", length=None, main=False)) is None
    assert caplog.text == ""


def test_there_is_no_limit_without_an_engine():
    assert engine_limit(SimpleNamespace(use_vllm=False)) is None

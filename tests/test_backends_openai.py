"""The OpenAI backend against a real HTTP server on this machine: replies, failures, time, and where the key goes."""

from __future__ import annotations

import gc
import json
import pickle
import random
import socket
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from trl_mentor.backends.base import Backend
from trl_mentor.backends.openai import OpenAIBackend
from trl_mentor.errors import BackendError, ConfigError
from trl_mentor.records import Reply, Role, Usage

ASK = [{"role": "system", "content": "You judge."}, {"role": "user", "content": "Is it good?"}]
KEY = "sk-planted-3f9c2b77a1"
AMBIENT = {
    "OPENAI_API_KEY": "sk-ambient-key",
    "OPENAI_ADMIN_KEY": "sk-ambient-admin",
    "OPENAI_ORG_ID": "ambient-org",
    "OPENAI_PROJECT_ID": "ambient-project",
    "OPENAI_CUSTOM_HEADERS": "X-Gateway: ambient-gateway\nauthorization: Bearer ambient-custom",
}


def completion(content="fine", *, finish_reason="stop", usage=(11, 3)):
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "served",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
        ],
    }
    if usage is not None:
        body["usage"] = {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": usage[0] + usage[1],
        }
    return body


def send(handler, status, body, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


def play(status, body, **headers):
    return lambda handler: send(handler, status, body, **headers)


@pytest.fixture
def server():
    """An HTTP server that plays `plays` in order, the last one for ever, and keeps what it was sent."""
    state = SimpleNamespace(plays=[play(200, completion())], requests=[], released=threading.Event())
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                state.requests.append(
                    SimpleNamespace(path=self.path, headers=self.headers, body=body, time=time.monotonic())
                )
                step = state.plays[min(len(state.requests), len(state.plays)) - 1]
            try:
                step(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    state.url = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    state.released.set()
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture(autouse=True)
def _no_ambient_settings(monkeypatch):
    for name in (*AMBIENT, "OPENAI_BASE_URL", "MENTOR_KEY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def backend(server):
    with closing(OpenAIBackend("served", base_url=server.url)) as opened:
        yield opened


def ask(backend, timeout=10.0):
    return backend.chat(ASK, role=Role.JUDGMENT, timeout=timeout)


def error_of(backend, timeout=10.0):
    with pytest.raises(BackendError) as caught:
        ask(backend, timeout)
    return caught.value


# What it sends and returns


def test_it_is_a_backend(backend):
    assert isinstance(backend, Backend)


def test_a_reply_comes_back_with_its_usage(backend, server):
    assert ask(backend) == Reply("fine", Usage(prompt_tokens=11, completion_tokens=3), truncated=False)
    assert server.requests[0].path == "/v1/chat/completions"


def test_the_request_holds_the_messages_and_the_settings(server):
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    with closing(OpenAIBackend("m", base_url=server.url, temperature=0.2, max_tokens=77, extra_body=extra)) as backend:
        ask(backend)
    assert server.requests[0].body == {
        "model": "m",
        "messages": ASK,
        "temperature": 0.2,
        "max_tokens": 77,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_a_reply_cut_at_the_token_limit_is_marked(backend, server):
    server.plays = [play(200, completion("half a", finish_reason="length"))]
    assert ask(backend).truncated


@pytest.mark.parametrize("usage", [None, (None, None), ("11", 2.5)])
def test_an_endpoint_that_does_not_count_properly_gives_zero_usage(backend, server, usage):
    body = completion(usage=None)
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    server.plays = [play(200, body)]
    assert ask(backend).usage == Usage(0, 0)


def test_a_reply_without_content_is_the_empty_text(backend, server):
    server.plays = [play(200, completion(None, finish_reason="length"))]
    assert ask(backend) == Reply("", Usage(11, 3), truncated=True)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"choices": [', {}),
        (b"<html>It works!</html>", {"Content_Type": "text/html"}),
        ({"error": {"message": "quota"}}, {}),
        (completion() | {"choices": []}, {}),
        (completion() | {"choices": None}, {}),
        (completion() | {"choices": "text"}, {}),
        (completion() | {"choices": [None]}, {}),
        (completion() | {"choices": [{"message": None}]}, {}),
        (completion([{"type": "text", "text": "in parts"}]), {}),
        ([1, 2], {}),
        (b"null", {}),
        (b"", {}),
    ],
)
def test_an_answer_that_is_no_chat_completion_is_a_backend_error_and_is_not_asked_again(
    backend, server, body, headers
):
    server.plays = [play(200, body, **headers)]
    error_of(backend)
    assert len(server.requests) == 1


def test_messages_that_cannot_be_encoded_are_a_backend_error(backend):
    with pytest.raises(BackendError, match="UnicodeEncodeError"):
        backend.chat([{"role": "user", "content": "\ud83d"}], role=Role.JUDGMENT, timeout=5.0)


# Failures and time


def test_a_rate_limit_is_waited_for_as_the_endpoint_asks(backend, server):
    server.plays = [play(429, {"error": {"message": "slow down"}}, Retry_After="0.4"), play(200, completion())]
    assert ask(backend).text == "fine"
    first, second = server.requests
    assert 0.4 <= second.time - first.time < 5


def test_a_retry_date_is_understood(backend, server):
    past = "Wed, 21 Oct 2015 07:28:00 GMT"
    server.plays = [play(503, {}, Retry_After=past), play(200, completion())]
    assert ask(backend).text == "fine"


def test_a_rate_limit_longer_than_the_time_left_fails_at_once_and_says_so(backend, server):
    server.plays = [play(429, {"error": {"message": "slow down"}}, Retry_After="60")]
    started = time.monotonic()
    assert "HTTP 429" in str(error := error_of(backend, timeout=20.0))
    assert "too late" in str(error)
    assert time.monotonic() - started < 10


def test_server_errors_are_retried_as_often_as_told(server):
    server.plays = [play(500, {"error": {"message": "boom"}})]
    with closing(OpenAIBackend("served", base_url=server.url, max_retries=1)) as backend:
        assert "HTTP 500" in str(error_of(backend))
    assert len(server.requests) == 2


def test_a_refused_request_is_not_retried(backend, server):
    server.plays = [play(400, {"error": {"message": "no such model"}})]
    assert "HTTP 400: " in str(error := error_of(backend))
    assert "no such model" in str(error)
    assert len(server.requests) == 1


def test_an_endpoint_that_is_not_there_is_a_backend_error_that_names_it():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/v1"
        with closing(OpenAIBackend("served", base_url=url, max_retries=1)) as backend:
            assert url in str(error_of(backend))


def test_a_lost_connection_is_retried(backend, server):
    server.plays = [lambda handler: handler.connection.shutdown(socket.SHUT_RDWR), play(200, completion())]
    assert ask(backend).text == "fine"


def wait_for_release(handler, server):
    server.released.wait(30)
    send(handler, 200, completion("too late"))


def drip(handler, server):
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    while not server.released.wait(0.05):
        handler.wfile.write(b"\n")
        handler.wfile.flush()


@pytest.mark.parametrize("behaviour", [wait_for_release, drip])
def test_a_slow_reply_ends_at_the_timeout_even_if_it_keeps_sending(backend, server, behaviour):
    server.plays = [lambda handler: behaviour(handler, server)]
    started = time.monotonic()
    error_of(backend, timeout=0.6)
    assert 0.5 <= time.monotonic() - started < 10
    assert len(server.requests) == 1


def test_all_retries_together_stay_within_the_timeout(server):
    server.plays = [play(500, {})]
    with closing(OpenAIBackend("served", base_url=server.url, max_retries=50)) as backend:
        started = time.monotonic()
        error_of(backend, timeout=1.5)
        assert time.monotonic() - started < 6
    assert 2 <= len(server.requests) <= 4


def test_no_time_left_means_no_request(backend, server):
    error_of(backend, timeout=0.0)
    assert server.requests == []


def test_a_retry_leaves_the_global_random_state_alone(backend, server):
    server.plays = [play(503, {}, Retry_After="0.05"), play(200, completion())]
    before = random.getstate()
    ask(backend)
    assert random.getstate() == before
    assert len(server.requests) == 2


# Threads and closing


def test_many_threads_are_served_at_the_same_time(backend, server):
    together = threading.Barrier(8, timeout=5)

    def meet(handler):
        together.wait()
        send(handler, 200, completion())

    server.plays = [meet]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: ask(backend), range(8)))
    assert [reply.text for reply in replies] == ["fine"] * 8


def test_close_ends_a_request_in_flight_and_leaves_no_thread(server):
    server.plays = [lambda handler: wait_for_release(handler, server)]
    before = set(threading.enumerate())
    backend = OpenAIBackend("served", base_url=server.url)
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(error_of, backend, 30.0)
        while not server.requests:
            time.sleep(0.01)
        backend.close()
        assert "closed" in str(pending.result(timeout=5))
    names = [thread.name for thread in set(threading.enumerate()) - before]
    assert "mentor-requests" not in names


def test_a_closed_backend_refuses_and_can_be_closed_again(server):
    backend = OpenAIBackend("served", base_url=server.url)
    ask(backend)
    backend.close()
    backend.close()
    assert "closed" in str(error_of(backend))


# Where the key goes


def sent_headers(server):
    return "\n".join(f"{name}: {value}" for request in server.requests for name, value in request.headers.items())


def test_the_key_of_the_named_variable_is_sent(server, monkeypatch):
    monkeypatch.setenv("MENTOR_KEY", KEY + "\n")
    with closing(OpenAIBackend("served", base_url=server.url, api_key_env="MENTOR_KEY")) as backend:
        ask(backend)
    assert server.requests[0].headers.get_all("Authorization") == [f"Bearer {KEY}"]


@pytest.mark.parametrize("api_key_env", [None, "MENTOR_KEY"])
def test_nothing_of_the_openai_variables_reaches_another_endpoint(server, monkeypatch, api_key_env):
    monkeypatch.setenv("MENTOR_KEY", KEY)
    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)
    with closing(OpenAIBackend("served", base_url=server.url, api_key_env=api_key_env)) as backend:
        ask(backend)
    assert "ambient" not in sent_headers(server)
    expected = KEY if api_key_env else "no-key-needed"
    assert server.requests[0].headers.get_all("Authorization") == [f"Bearer {expected}"]


def test_without_a_base_url_the_clients_own_variables_hold(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    with closing(OpenAIBackend("served", max_tokens=9)) as backend:
        ask(backend)
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert server.requests[0].body["max_completion_tokens"] == 9


def test_the_key_is_in_no_repr_error_pickle_or_dictionary(server, monkeypatch):
    monkeypatch.setenv("MENTOR_KEY", KEY)
    server.plays = [play(401, {"error": {"message": f"{'x' * 380} bad key: Bearer {KEY}"}})]
    with closing(OpenAIBackend("served", base_url=server.url, api_key_env="MENTOR_KEY")) as backend:
        error = error_of(backend)
        seen = [repr(backend), str(vars(backend)), str(pickle.dumps(backend)), repr(error), str(pickle.dumps(error))]
    seen += traceback.format_exception(error)
    assert f"Bearer {KEY}" in sent_headers(server)
    assert not [text for text in seen if "planted" in text]
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_pickled_backend_reads_the_key_anew(server, monkeypatch):
    monkeypatch.setenv("MENTOR_KEY", "sk-old")
    with closing(OpenAIBackend("m", base_url=server.url, api_key_env="MENTOR_KEY", temperature=0.3)) as backend:
        dumped = pickle.dumps(backend)
    monkeypatch.setenv("MENTOR_KEY", "sk-new")
    with closing(pickle.loads(dumped)) as copy:
        ask(copy)
        assert repr(copy) == repr(backend)
    assert server.requests[0].headers["Authorization"] == "Bearer sk-new"
    assert server.requests[0].body["temperature"] == 0.3


def test_a_missing_variable_is_named_at_construction():
    with pytest.raises(ConfigError, match="MENTOR_KEY is not set"):
        OpenAIBackend("m", base_url="http://localhost:1/v1", api_key_env="MENTOR_KEY")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        OpenAIBackend("m")


@pytest.mark.parametrize("key", [KEY, "hf_planted", "gsk_planted", "AKIAPLANTED"])
def test_a_key_given_instead_of_a_variable_name_is_not_repeated(key):
    with pytest.raises(ConfigError, match="name of the variable") as caught:
        OpenAIBackend("m", base_url="http://localhost:1/v1", api_key_env=key)
    assert "planted" not in str(caught.value).lower()


@pytest.mark.parametrize("key", ["", "  \n", "planted\x07key", "planted\nkey", "plantéd"])
def test_a_key_that_cannot_be_sent_is_refused_without_repeating_it(monkeypatch, key):
    monkeypatch.setenv("MENTOR_KEY", key)
    with pytest.raises(ConfigError, match="MENTOR_KEY must hold") as caught:
        OpenAIBackend("m", base_url="http://localhost:1/v1", api_key_env="MENTOR_KEY")
    assert "plant" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://me:planted@localhost/v1", "me:planted@localhost/v1", "http://localhost/v1?key=planted"]
)
def test_a_url_that_may_hold_a_secret_is_refused_without_repeating_it(url):
    with pytest.raises(ConfigError, match="api_key_env") as caught:
        OpenAIBackend("m", base_url=url)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": 2.5},
        {"temperature": float("nan")},
        {"max_tokens": 0},
        {"max_retries": -1},
        {"base_url": "localhost:8000/v1"},
        {"base_url": ""},
        {"extra_body": {"stream": True}},
        {"extra_body": {"stop": object()}},
    ],
)
def test_a_wrong_setting_is_refused_at_construction(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        OpenAIBackend("m", **{"base_url": "http://localhost:1/v1", **wrong})


def test_an_empty_model_name_is_refused():
    with pytest.raises(ConfigError, match="model name is empty"):
        OpenAIBackend("", base_url="http://localhost:1/v1")


def test_a_key_that_the_endpoint_echoes_in_its_reply_is_taken_out(server, monkeypatch):
    monkeypatch.setenv("MENTOR_KEY_HERE", KEY)
    server.plays = [play(200, completion(f"Your header was Bearer {KEY}."))]
    backend = OpenAIBackend("m", base_url=server.url, api_key_env="MENTOR_KEY_HERE")
    assert ask(backend).text == "Your header was Bearer [key]."
    backend.close()


def test_a_backend_that_is_dropped_leaves_no_thread(server):
    def requests():
        return [thread for thread in threading.enumerate() if thread.name == "mentor-requests" and thread.is_alive()]

    before = len(requests())
    backend = OpenAIBackend("m", base_url=server.url)
    ask(backend)
    assert len(requests()) == before + 1
    del backend
    gc.collect()
    deadline = time.monotonic() + 5
    while len(requests()) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(requests()) == before


def test_a_dummy_key_is_no_secret_to_be_cut_out_of_words(server, monkeypatch):
    monkeypatch.setenv("DUMMY_KEY", "x")
    server.plays = [play(200, completion("Isolate x next."))]
    backend = OpenAIBackend("m", base_url=server.url, api_key_env="DUMMY_KEY")
    assert ask(backend).text == "Isolate x next."
    backend.close()

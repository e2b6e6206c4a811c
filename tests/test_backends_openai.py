"""The OpenAI backend against a real HTTP server on this machine: replies, failures, time, and where the key goes."""

from __future__ import annotations

import gc
import gzip
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
from trl_mentor.backends.key_guard import KeyGuard
from trl_mentor.backends.openai import OpenAIBackend
from trl_mentor.errors import AccessDeniedError, BackendError, ConfigError, RequestRefusedError
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
    state.http = http
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
    with pytest.raises(ConfigError, match="variable NOPE is not set"):
        OpenAIBackend("m", base_url="http://localhost:1/v1", api_key_env="NOPE")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        OpenAIBackend("m")


@pytest.mark.parametrize("key", [KEY, "hf_planted", "gsk_planted", "AKIAPLANTED", "PLANTED_" + 40 * "A"])
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


ESCAPED = "".join(f"\\u{ord(char):04x}" for char in KEY)


@pytest.mark.parametrize(
    "form",
    [
        ESCAPED,
        ESCAPED.upper().replace("U", "u"),
        ESCAPED[:6] + KEY[1:],
        f"{KEY[:-1]}{ESCAPED[-6:]}",
        ESCAPED.replace("\\", "\\" * 4),
    ],
)
def test_a_key_that_is_escaped_in_the_json_of_a_reply_is_taken_out_before_somebody_reads_it(server, monkeypatch, form):
    monkeypatch.setenv("MENTOR_KEY_HERE", KEY)
    server.plays = [play(200, completion(f'{{"misconceptions": ["sends {form}"]}}'))]
    backend = OpenAIBackend("m", base_url=server.url, api_key_env="MENTOR_KEY_HERE")
    assert ask(backend).text == '{"misconceptions": ["sends [key]"]}'
    backend.close()


def test_signs_of_a_key_are_found_escaped_as_well():
    guard = KeyGuard('key/with"\\signs')
    assert guard.hide(json.dumps('key/with"\\signs').replace("/", "\\/")) == '"[key]"'


def test_a_key_that_the_endpoint_echoes_in_its_reply_is_taken_out(server, monkeypatch):
    monkeypatch.setenv("MENTOR_KEY_HERE", KEY)
    server.plays = [play(200, completion(f"Your header was Bearer {KEY}."))]
    backend = OpenAIBackend("m", base_url=server.url, api_key_env="MENTOR_KEY_HERE")
    assert ask(backend).text == "Your header was Bearer [key]."
    backend.close()


def test_a_backend_that_is_dropped_leaves_no_thread(server):
    def requests():
        return {thread for thread in threading.enumerate() if thread.name == "mentor-requests"}

    others = requests()  # of tests before, which may end at any time
    backend = OpenAIBackend("m", base_url=server.url)
    ask(backend)
    (thread,) = requests() - others
    del backend
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()
    gc.collect()  # would warn of a connection that was left open


def test_a_dummy_key_is_no_secret_to_be_cut_out_of_words(server, monkeypatch):
    monkeypatch.setenv("DUMMY_KEY", "x")
    server.plays = [play(200, completion("Isolate x next."))]
    backend = OpenAIBackend("m", base_url=server.url, api_key_env="DUMMY_KEY")
    assert ask(backend).text == "Isolate x next."
    backend.close()


# Schemas, thinking, bounds


SCHEMA = {"type": "object", "properties": {"verdict": {"type": "string"}}, "required": ["verdict"]}


def ask_in_form(backend, timeout=10.0, role=Role.JUDGMENT):
    return backend.chat(ASK, role=role, timeout=timeout, schema=SCHEMA)


def forms(server):
    return ["response_format" in request.body for request in server.requests]


def refusing_forms(status=400, *, longest=10_000, otherwise=None):
    """An endpoint that knows no `response_format`, and refuses what is too long for it."""

    def answer(handler):
        body = handler.server.state.requests[-1].body
        if len(str(body["messages"])) > longest:
            send(handler, 400, {"error": {"message": "context length exceeded"}})
        elif "response_format" in body:
            send(handler, status, {"error": {"message": "unknown field response_format"}})
        else:
            (otherwise or play(200, completion()))(handler)

    return answer


@pytest.fixture
def strict(server):
    """As `server`, whose plays see the request."""
    server.http.state = server
    return server


def test_a_schema_goes_along_as_the_form_of_the_reply(backend, server):
    ask_in_form(backend)
    ask(backend)
    assert server.requests[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "judgment", "strict": True, "schema": SCHEMA},
    }
    assert "response_format" not in server.requests[1].body


@pytest.mark.parametrize("status", [400, 404, 422, 501])
def test_an_endpoint_that_takes_no_schema_is_found_out_once_and_said_once(backend, strict, status, caplog):
    caplog.set_level("INFO", logger="trl_mentor")
    strict.plays = [refusing_forms(status)]
    assert [ask_in_form(backend).text for _ in range(3)] == ["fine"] * 3
    assert forms(strict) == [True, False, False, False]
    (line,) = [record.message for record in caplog.records if "response_format" in record.message]
    assert strict.url in line
    assert f"HTTP {status}" in line


def test_many_first_requests_at_once_find_out_together_and_say_it_once(backend, strict, caplog):
    caplog.set_level("INFO", logger="trl_mentor")
    strict.plays = [refusing_forms()]
    with ThreadPoolExecutor(8) as pool:
        assert [reply.text for reply in pool.map(lambda _: ask_in_form(backend), range(16))] == ["fine"] * 16
    assert len([record for record in caplog.records if "response_format" in record.message]) == 1
    before = len(strict.requests)
    ask_in_form(backend)
    assert forms(strict)[before:] == [False]


def test_a_request_that_is_too_long_with_and_without_a_schema_turns_nothing_off(backend, server):
    server.plays = [play(400, {"error": {"message": "context length exceeded"}})] * 2 + [play(200, completion())]
    with pytest.raises(RequestRefusedError, match="context length"):
        ask_in_form(backend)
    assert ask_in_form(backend).text == "fine"
    assert forms(server) == [True, False, True]


def test_the_request_without_the_schema_is_none_of_the_retries(strict):
    strict.plays = [refusing_forms(otherwise=play(200, completion()))]
    with closing(OpenAIBackend("served", base_url=strict.url, max_retries=0)) as backend:
        assert ask_in_form(backend).text == "fine"
    assert forms(strict) == [True, False]


def test_a_server_error_turns_schemas_off_only_where_none_was_ever_taken(server):
    failing, fine = play(500, {"error": {"message": "boom"}}), play(200, completion())
    server.plays = [failing, fine, fine]
    with closing(OpenAIBackend("served", base_url=server.url, max_retries=0)) as backend:
        assert ask_in_form(backend).text == ask_in_form(backend).text == "fine"
    assert forms(server) == [True, False, False]
    server.requests.clear()
    server.plays = [fine, failing, fine]
    with closing(OpenAIBackend("served", base_url=server.url, max_retries=0)) as backend:
        ask_in_form(backend)
        with pytest.raises(BackendError, match="HTTP 500"):
            ask_in_form(backend)
        ask_in_form(backend)
    assert forms(server) == [True, True, True]


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_what_has_nothing_to_do_with_schemas_is_not_asked_again_without_one(server, status):
    server.plays = [play(status, {})]
    with closing(OpenAIBackend("served", base_url=server.url, max_retries=0)) as backend, pytest.raises(BackendError):
        ask_in_form(backend)
    assert forms(server) == [True]


def test_a_form_of_ones_own_in_extra_body_stands(server):
    own = {"response_format": {"type": "json_object"}}
    with closing(OpenAIBackend("served", base_url=server.url, extra_body=own)) as backend:
        ask_in_form(backend)
    assert server.requests[0].body["response_format"] == {"type": "json_object"}


def test_thinking_is_switched_by_role_beside_other_arguments_of_the_template(server):
    extra = {"chat_template_kwargs": {"style": "short", "enable_thinking": False}}
    thinking = {Role.JUDGMENT: True, "repair": False}
    with closing(OpenAIBackend("m", base_url=server.url, extra_body=extra, thinking=thinking)) as backend:
        for role in (Role.JUDGMENT, Role.REPAIR, Role.GENERATION):
            ask_in_form(pickle.loads(pickle.dumps(backend)) if role is Role.REPAIR else backend, role=role)
    assert [request.body["chat_template_kwargs"] for request in server.requests] == [
        {"style": "short", "enable_thinking": True},
        {"style": "short", "enable_thinking": False},
        {"style": "short", "enable_thinking": False},
    ]
    assert forms(server) == [False, True, True]  # a form would leave the judge no room for its thinking


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_that_is_returned_apart_comes_with_the_reply(backend, server, name):
    body = completion()
    body["choices"][0]["message"][name] = "It is good."
    body["usage"]["prompt_tokens_details"] = {"cached_tokens": 8}
    body["usage"]["completion_tokens_details"] = {"reasoning_tokens": 2}
    server.plays = [play(200, body)]
    assert ask(backend) == Reply("fine", Usage(11, 3, cached_tokens=8, thinking_tokens=2), thinking="It is good.")


@pytest.mark.parametrize("details", [None, "many", {"cached_tokens": None}, {"cached_tokens": "many"}, [1]])
def test_details_of_the_usage_that_are_no_counts_are_zero(backend, server, details):
    body = completion()
    body["choices"][0]["message"]["reasoning_content"] = {"not": "text"}
    body["usage"] |= {"prompt_tokens_details": details, "completion_tokens_details": details}
    server.plays = [play(200, body)]
    assert ask(backend) == Reply("fine", Usage(11, 3))


def test_an_answer_without_end_is_not_read_to_its_end_nor_asked_for_again(backend, server):
    sent = []

    def pour(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        while not server.released.is_set():
            handler.wfile.write(b" " * 1_000_000)
            sent.append(1_000_000)

    server.plays = [pour]
    assert "longer than 8 MB" in str(error_of(backend, timeout=60.0))
    assert len(server.requests) == 1
    assert sum(sent) < 40_000_000  # 8 MB and what the sockets hold


def test_a_large_answer_of_an_error_is_bounded_too(server):
    server.plays = [play(500, b"x" * 9_000_000)]
    with closing(OpenAIBackend("served", base_url=server.url, max_retries=0)) as backend:
        assert "longer than 8 MB" in str(error_of(backend, timeout=60.0))


def test_compressed_answers_are_not_asked_for_and_not_taken(backend, server):
    bomb = gzip.compress(b" " * 10_000_000)
    server.plays = [play(200, bomb, Content_Encoding="gzip")]
    assert "compressed" in str(error_of(backend))
    assert server.requests[0].headers["Accept-Encoding"] == "identity"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed_and_the_error_says_what_to_do(backend, server, status):
    server.plays = [play(status, b"", Location="http://me:planted@elsewhere.example:81/v2?token=planted")]
    error = str(error_of(backend))
    assert f"HTTP {status}" in error
    assert "it redirects to http://elsewhere.example:81/v2; " in error
    assert "base_url" in error
    assert "planted" not in error
    assert len(server.requests) == 1


def test_a_redirect_to_what_is_no_address_is_an_error_like_any_other(backend, server):
    server.plays = [play(307, b"", Location="http://[planted")]
    assert "redirects to what is no address" in str(error_of(backend))


@pytest.mark.parametrize(
    "asked",
    [
        "-5", "1e400", "nan", "soon", "", "Wed, 99 Oct 2015 99:99:99 GMT", "Wed, 21 Oct 99999 07:28:00 GMT",
        f"Wed, 21 Oct 2015 07:28:{'9' * 20} GMT",
    ],
)  # fmt: skip
def test_a_retry_after_that_makes_no_sense_is_the_usual_short_wait(backend, server, asked):
    server.plays = [play(429, {}, Retry_After=asked), play(200, completion())]
    assert ask(backend).text == "fine"
    assert server.requests[1].time - server.requests[0].time < 5


@pytest.mark.parametrize("asked", ["1e300", "Wed, 21 Oct 9999 07:28:00 GMT"])
def test_a_retry_after_in_a_distant_future_fails_at_once(backend, server, asked):
    server.plays = [play(429, {}, Retry_After=asked)]
    assert "too late" in str(error_of(backend))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RequestRefusedError), (413, RequestRefusedError), (422, RequestRefusedError),
        (401, AccessDeniedError), (403, BackendError), (404, BackendError), (429, BackendError), (500, BackendError),
    ],
)  # fmt: skip
def test_a_failure_says_whether_it_is_about_the_request_the_key_or_the_endpoint(server, status, kind):
    server.plays = [play(status, {"error": {"message": "no"}})]
    with closing(OpenAIBackend("served", base_url=server.url, max_retries=0)) as backend:
        assert type(error_of(backend)) is kind


@pytest.mark.parametrize(
    ("name", "advice"), [("MENTOR_KEY", "check the key in the variable MENTOR_KEY"), (None, "no key was sent")]
)
def test_a_refused_key_names_the_variable_to_check(server, monkeypatch, name, advice):
    monkeypatch.setenv("MENTOR_KEY", KEY)
    server.plays = [play(401, {"error": {"message": f"bad key {KEY}"}})]
    with closing(OpenAIBackend("served", base_url=server.url, api_key_env=name)) as backend:
        assert advice in str(error := error_of(backend))
        assert name is None or "planted" not in str(error)


def test_the_identity_is_what_determines_a_reply_and_neither_address_nor_key(monkeypatch):
    monkeypatch.setenv("MENTOR_KEY", KEY)

    def identity(model="m", **settings):
        with closing(OpenAIBackend(model, **{"base_url": "http://a/v1", **settings})) as backend:
            return backend.identity

    same = [{"base_url": "http://b/v1"}, {"api_key_env": "MENTOR_KEY"}, {"max_retries": 7}]
    other = [
        {"model": "n"}, {"temperature": 0.1}, {"max_tokens": 5}, {"extra_body": {"top_p": 1}},
        {"thinking": {"repair": True}},
    ]  # fmt: skip
    assert {identity(**settings) for settings in same} == {identity()}
    assert len({identity(), *(identity(**settings) for settings in other)}) == 6
    assert "planted" not in identity(api_key_env="MENTOR_KEY")

"""Requests to an endpoint on real sockets: connections, proxies, processes, and what the environment may change."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from trl_mentor.backends.openai import OpenAIBackend
from trl_mentor.errors import BackendError, ConfigError
from trl_mentor.records import Role

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import stub_server  # noqa: E402

ASK = [{"role": "user", "content": "Is it good?"}]
KEY = "sk-planted-3f9c2b77a1"
AMBIENT = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "NETRC")


@pytest.fixture(autouse=True)
def _no_ambient_settings(monkeypatch):
    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def endpoint(monkeypatch):
    """Replies to everything and keeps what it was asked; `headers` go along, `stays` says if connections stay open."""
    monkeypatch.setenv("MENTOR_KEY", KEY)
    seen = []

    async def play(asked, writer, stub):
        seen.append(asked)
        body = stub.error or stub_server.completion("fine")
        await stub_server.send(writer, body, status=400 if stub.error else 200, **stub.headers)
        return stub.stays

    with stub_server.threaded(play) as server:
        server.seen, server.headers, server.stays, server.error = seen, {}, True, b""
        yield server


def opened(server, **settings):
    return closing(OpenAIBackend("m", **{"base_url": server.url, "api_key_env": "MENTOR_KEY", **settings}))


def ask(backend, content="Is it good?"):
    return backend.chat([{"role": "user", "content": content}], role=Role.JUDGMENT, timeout=10.0).text


def error_of(backend):
    with pytest.raises(BackendError) as caught:
        ask(backend)
    return str(caught.value)


# Connections


def test_a_connection_is_kept_for_the_next_request(endpoint):
    with opened(endpoint) as backend:
        assert [ask(backend) for _ in range(3)] == ["fine"] * 3
    assert endpoint.connections == 1


def test_a_connection_that_the_endpoint_has_ended_meanwhile_is_not_used(endpoint):
    endpoint.stays = False
    with opened(endpoint, max_retries=0) as backend:
        for _ in range(3):
            assert ask(backend) == "fine"
            time.sleep(0.05)
    assert endpoint.connections == 3


def test_a_request_of_many_megabytes_is_sent(endpoint):
    with opened(endpoint) as backend:
        assert ask(backend, "é" * 3_000_000) == "fine"
    assert len(endpoint.seen[0].body["messages"][0]["content"]) == 3_000_000


def test_no_cookie_is_sent_back(endpoint):
    endpoint.headers = {"Set_Cookie": "session=1; Path=/"}
    with opened(endpoint) as backend:
        ask(backend)
        ask(backend)
    assert "cookie" not in endpoint.seen[1].headers


# Processes

SCRIPT = f"""
import gc, os, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import stub_server
from trl_mentor import OpenAIBackend
from trl_mentor.records import Role

def ask():
    return backend.chat({ASK!r}, role=Role.JUDGMENT, timeout=5.0).text

with stub_server.spawned("--latency", "0") as url:
    backend = OpenAIBackend("m", base_url=url)
    ask()
"""
FORK = """
    child = os.fork()
    if not child:
        ask()
        sys.exit(0)  # unlike os._exit, this drops the backend
    assert os.waitpid(child, 0)[1] == 0
    ask()
    child = os.fork()
    if not child:
        del backend
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    ask()
    backend.close()
"""


def test_a_process_that_ends_without_closing_a_backend_says_nothing():
    done = subprocess.run([sys.executable, "-X", "dev", "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_process_can_ask_and_takes_nothing_from_its_parent():
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT + FORK]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


HANGING_LOOKUP = """
import socket, threading
from trl_mentor.backends.openai import OpenAIBackend
from trl_mentor.errors import BackendError
from trl_mentor.records import Role

socket.getaddrinfo = lambda *args, **options: threading.Event().wait()
backend = OpenAIBackend("m", base_url="http://mentor.example/v1", max_retries=0)
try:
    backend.chat([{"role": "user", "content": "?"}], role=Role.JUDGMENT, timeout=0.2)
except BackendError:
    print("failed")
"""


def test_a_program_ends_although_the_name_of_the_endpoint_is_still_looked_up():
    command = [sys.executable, "-c", HANGING_LOOKUP]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "failed\n", "")


# The environment


def test_a_proxy_of_the_environment_is_used_unless_the_host_is_exempt(endpoint, monkeypatch):
    proxy = endpoint.url.removesuffix("/v1").replace("://", "://me:planted-password@")
    monkeypatch.setenv("http_proxy", proxy)
    with opened(endpoint, base_url="http://mentor.example/v1") as backend:
        assert ask(backend) == "fine"
    assert endpoint.seen[0].path == "http://mentor.example/v1/chat/completions"
    assert endpoint.seen[0].headers["proxy-authorization"].startswith("Basic ")
    assert endpoint.seen[0].headers["authorization"] == f"Bearer {KEY}"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with opened(endpoint) as backend:
        assert ask(backend) == "fine"
    assert endpoint.seen[1].path == "/v1/chat/completions"


@pytest.mark.parametrize("base_url", ["http://mentor.example/v1", "https://mentor.example/v1"])
def test_a_proxy_that_is_not_there_is_named_without_its_password(monkeypatch, base_url):
    monkeypatch.setenv("all_proxy", "me:planted@127.0.0.1:1")
    with closing(OpenAIBackend("m", base_url=base_url, max_retries=0)) as backend:
        assert "127.0.0.1:1" in (text := error_of(backend))
    assert "planted" not in text


def test_a_proxy_that_wants_another_password_does_not_get_its_own_repeated(endpoint, monkeypatch):
    endpoint.error = b"who are you"
    monkeypatch.setenv("https_proxy", endpoint.url.removesuffix("/v1").replace("://", "://me:planted@"))
    with opened(endpoint, base_url="https://mentor.example/v1", max_retries=0) as backend:
        text = error_of(backend)
    assert endpoint.seen[0].method == "CONNECT"
    assert "authorization" not in endpoint.seen[0].headers  # the key is for the endpoint alone
    assert "planted" not in text


def test_a_proxy_that_does_not_speak_http_is_refused_at_construction_without_its_password(monkeypatch):
    monkeypatch.setenv("all_proxy", "socks5://me:planted@127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"'socks5'.*expected http or https") as caught:
        OpenAIBackend("m", base_url="http://mentor.example/v1")
    assert "planted" not in str(caught.value)


def test_a_netrc_file_changes_no_key(endpoint, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password planted\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with opened(endpoint, api_key_env=None) as backend:
        ask(backend)
    assert endpoint.seen[0].headers["authorization"] == "Bearer no-key-needed"


def test_organization_and_project_go_along_where_the_default_address_holds(endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "")
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url + "/")
    with opened(endpoint, base_url=None) as backend:
        assert backend.endpoint == endpoint.url
        ask(backend)
    assert endpoint.seen[0].headers["openai-organization"] == "org-1"
    assert "openai-project" not in endpoint.seen[0].headers


def test_an_address_in_the_environment_is_checked_as_one_in_the_settings(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:planted@localhost/v1")
    with pytest.raises(ConfigError, match="no user name") as caught:
        OpenAIBackend("m")
    assert "planted" not in str(caught.value)


# What an endpoint says back


@pytest.mark.parametrize("cookie", [f"a({KEY})=1; Path=/", f"a={KEY}; Expires={KEY}"])
def test_a_cookie_that_says_the_key_back_is_not_logged(endpoint, caplog, cookie):
    caplog.set_level(logging.DEBUG)
    endpoint.headers = {"Set_Cookie": cookie}
    with opened(endpoint) as backend:
        ask(backend)
    assert "planted" not in caplog.text


@pytest.mark.parametrize(
    "body", [{"detail": f"bad {KEY}"}, {"error": f"bad {KEY}"}, [f"bad {KEY}"], {"error": {"message": f"bad {KEY}"}}]
)
def test_a_key_that_json_spells_otherwise_is_found_in_an_error(endpoint, body):
    endpoint.error = json.dumps(body).replace("planted", "plan\\u0074ed").encode()
    with opened(endpoint) as backend:
        text = error_of(backend)
    assert "bad [key]" in text
    assert "3f9c2b77a1" not in text


def test_an_answer_that_is_no_http_is_a_backend_error(monkeypatch):
    async def play(asked, writer, stub):
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        return False

    with stub_server.threaded(play) as server, opened(server, api_key_env=None, max_retries=0) as backend:
        assert "gave no HTTP answer" in error_of(backend)

"""A key goes to the endpoint and nowhere else: a run with an endpoint that says the key back wherever it can."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import logging
import pickle
import sys
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
from rich.console import Console
from rich.traceback import Traceback
from transformers import TrainerCallback

from trl_mentor import Mentor, OpenAIBackend, read_journal
from trl_mentor.errors import BackendError
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin, Role

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import stub_server

VARIABLE = "MENTOR_KEY_OF_THE_LAB"
KEY = "sk-Planted-3f9C2b77A1d0"
ASK = [{"role": "user", "content": "Is it good?"}]
ECHO = {"generation": f"{tiny.HINT} {KEY}", "repair": json.dumps({"hint": f"{tiny.HINT} {KEY}"})}
ECHO |= {"attribution": json.dumps({"misconceptions": [f"sends Bearer {KEY}"]})}
ECHO |= {"judgment": json.dumps({"critique": f"fine, {KEY}", "verdict": "HIGH"})}

REDACTED = tiny.HINT + " [key]"


def forms(key: str = KEY) -> list[bytes]:
    """What must be found nowhere, in lower case: any ten characters of the key, and its base64 in usual headers."""
    pieces = [key[start : start + 10] for start in range(len(key) - 9)]
    encoded = [base64.b64encode(text.encode()).decode()[:20] for text in (key, f"Bearer {key}", f":{key}")]
    return [piece.lower().encode() for piece in (*pieces, *encoded)]


def holds_key(data: bytes | str) -> bool:
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    lowered = data.lower()
    return any(form in lowered for form in forms())


def contents(path: Path) -> Iterator[bytes]:
    """A file's bytes, and what it holds if it is packed."""
    data = path.read_bytes()
    yield data
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            yield from (packed.read(name) for name in packed.namelist())
    if data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)


def files_with_key(folder: Path) -> list[str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [str(path.relative_to(folder)) for path in files if any(map(holds_key, contents(path)))]


@pytest.fixture
def endpoint(monkeypatch):
    """Checks the key and says it back: in replies, in headers, and, after `good` requests, in errors."""
    monkeypatch.setenv(VARIABLE, KEY)
    state = SimpleNamespace(good=10**6, status=401, pad=0, headers=[], location=None)

    async def play(asked: stub_server.Asked, writer: asyncio.StreamWriter, stub: stub_server.Stub) -> bool:
        state.headers.append(asked.headers.get("authorization"))
        echo = {"X_Echo": f"Bearer {KEY}", "WWW_Authenticate": f"Bearer {KEY}", "X_Request_Id": KEY}
        if len(state.headers) > state.good or asked.headers.get("authorization") != f"Bearer {KEY}":
            error = {"message": f"{'x' * state.pad}Incorrect API key provided: {KEY}", "code": KEY}
            more = {} if state.location is None else {"Location": state.location}
            await stub_server.send(writer, json.dumps({"error": error}).encode(), status=state.status, **echo, **more)
        else:
            body = stub_server.completion(ECHO[asked.role], reasoning_content=f"My key is {KEY}.")
            await stub_server.send(writer, body.replace(b"stub-1", KEY.encode()), **echo)
        return True

    with stub_server.threaded(play) as server:
        state.url = server.url
        yield state


@pytest.fixture
def logged():
    """Everything that any logger says, at any level."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    ours = ("aiohttp", "asyncio", "trl_m")
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0].startswith(ours)]
    levels = {name: logging.getLogger(name).level for name in names} | {"": root.level}
    for name in levels:
        logging.getLogger(name).setLevel(logging.DEBUG)
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


class Tracker(TrainerCallback):
    """Keeps what the trackers of transformers send away: settings, the model's, every log, the state."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.sent += [json.dumps(args.to_sanitized_dict(), default=str), json.dumps(args.to_dict(), default=str)]
        self.sent += [args.to_json_string(), repr(args), str(args), model.config.to_json_string(), repr(kwargs)]

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.sent += [repr(logs), repr(state), repr(kwargs)]

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.sent += [repr(state), repr(kwargs)]


def trainer(output_dir: Path, url: str, tracker: Tracker, **options: Any) -> Any:
    settings = {"mentor_model": "stub", "mentor_base_url": url, "mentor_api_key_env": VARIABLE, "max_steps": 4}
    settings |= {"save_strategy": "steps", "save_steps": 1, "log_completions": True, "mentor_pause_after": 3}
    settings |= {"logging_strategy": "steps"}
    return tiny.Recorder(
        tiny.model(),
        reward_funcs=tiny.HardRowsFail(),
        args=tiny.config(output_dir, **{**settings, **options}),
        train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
        callbacks=[tracker],
    )


@pytest.mark.parametrize("status", [401, 500])
def test_a_run_leaves_the_key_nowhere(tmp_path, endpoint, logged, capfd, status):
    endpoint.good, endpoint.status = 9, status
    tracker = Tracker()
    made = trainer(tmp_path, endpoint.url, tracker)
    made.train()
    made.save_model()
    made.save_state()
    made.create_model_card(model_name="policy")

    journal = read_journal(tmp_path)
    assert set(endpoint.headers) == {f"Bearer {KEY}"}
    assert {item.guidance.hint for item in journal if item.guidance.origin is HintOrigin.ACCEPTED} == {REDACTED}
    assert any(str(status) in str(call.error) for item in journal for call in item.guidance.calls)
    assert (tmp_path / "README.md").is_file()
    assert (tmp_path / "mentor" / "cache" / "replies.sqlite").is_file()
    assert (tmp_path / "checkpoint-4" / "training_args.bin").is_file()
    assert files_with_key(tmp_path) == []

    mentor = made.strategy.mentor
    shown = {name: repr(thing) for name, thing in {**vars(made), **vars(mentor), "plan": mentor.plan}.items()}
    for endpoint_ in mentor.plan.backend._endpoints:
        shown |= {
            "endpoint": repr(endpoint_),
            "backend": repr(endpoint_.backend),
            "in it": repr(vars(endpoint_.backend)),
        }
        shown["pickled backend"] = pickle.dumps(endpoint_.backend).decode("latin-1")
    shown["pickled settings"] = pickle.dumps(made.args).decode("latin-1")
    shown["pickled journal"] = pickle.dumps((list(journal), journal.events)).decode("latin-1")
    out, err = capfd.readouterr()
    shown |= {"stdout": out, "stderr": err, "log": logged.getvalue(), "tracker": "\n".join(tracker.sent)}
    assert {name: text for name, text in shown.items() if holds_key(text)} == {}
    assert "HTTP" in logged.getvalue()
    assert VARIABLE in "\n".join(tracker.sent)


def test_the_search_finds_a_planted_copy(tmp_path):
    (tmp_path / "plain").write_bytes(b"\x00" + KEY.encode())
    (tmp_path / "part").write_text(KEY[5:16].upper())
    (tmp_path / "encoded").write_text(base64.b64encode(f"Bearer {KEY}".encode()).decode())
    (tmp_path / "packed.gz").write_bytes(gzip.compress(KEY.encode()))
    with zipfile.ZipFile(tmp_path / "packed.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("inner", KEY * 9)
    (tmp_path / "innocent").write_text(VARIABLE)
    assert files_with_key(tmp_path) == ["encoded", "packed.gz", "packed.zip", "part", "plain"]


def error_of(backend: OpenAIBackend) -> BackendError:
    with pytest.raises(BackendError) as caught:
        backend.chat(ASK, role=Role.JUDGMENT, timeout=5.0)
    return caught.value


def everything(error: BaseException) -> str:
    """An error as loggers, crash reporters and pickles show it, the variables of its frames included."""
    console = Console(file=io.StringIO(), width=4000)
    console.print(Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True))
    with_locals = traceback.TracebackException.from_exception(error, capture_locals=True)
    texts = [str(error), repr(error), repr(vars(error)), pickle.dumps(error).decode("latin-1"), *with_locals.format()]
    return "\n".join([*texts, console.file.getvalue(), repr(error.__cause__), repr(error.__context__)])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_an_error_holds_no_part_of_the_key_wherever_its_text_is_cut(endpoint, status):
    endpoint.good, endpoint.status = 0, status
    with closing(OpenAIBackend("stub", base_url=endpoint.url, api_key_env=VARIABLE, max_retries=0)) as backend:
        for endpoint.pad in range(300, 400):
            text = everything(error_of(backend)) if endpoint.pad % 25 == 0 else str(error_of(backend))
            assert not holds_key(text), f"{endpoint.pad} characters before it: {text[:4000]}"


@pytest.mark.parametrize(
    "location", [f"https://{KEY}.example/v1", f"https://user:{KEY}@example/", f"/v1?key={KEY}", f"/{KEY}/"]
)
def test_a_redirect_that_holds_the_key_is_not_repeated(endpoint, location):
    endpoint.good, endpoint.status, endpoint.location = 0, 307, location
    with closing(OpenAIBackend("stub", base_url=endpoint.url, api_key_env=VARIABLE, max_retries=0)) as backend:
        assert not holds_key(everything(error_of(backend)))


def test_what_the_endpoint_says_back_stays_out_of_guidances_events_and_the_log(endpoint, logged):
    endpoint.good = 3
    group = CollapsedGroup("w1 w1", (Attempt("w2", 0.0),), answer="answer-1")
    with closing(OpenAIBackend("stub", base_url=endpoint.url, api_key_env=VARIABLE)) as backend:
        mentor = Mentor(backend, pause_after=1)
        first, second = mentor.guide([group]) + mentor.guide([group])
        events = mentor.take_events()
    assert first.hint == REDACTED
    assert "401" in second.reason
    assert events
    assert not holds_key(repr((first, second, events)) + logged.getvalue())

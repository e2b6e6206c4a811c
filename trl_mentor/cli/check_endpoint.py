"""Checks of the mentor's endpoint: the key is set, a server answers, and it serves the model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from trl_mentor.backends.api import API
from trl_mentor.backends.endpoint import check_base_url, read_key, root_of
from trl_mentor.backends.http_client import Answer
from trl_mentor.cli.check_findings import Finding, Setup, fail, ok, skipped
from trl_mentor.errors import ConfigError
from trl_mentor.factory import build_backend
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.records import Reply, Role
from trl_mentor.settings import BackendKind

_LISTING_SECONDS = 15.0
_SHOWN_MODELS = 8
_FEW_TOKENS = 16
"""Enough to show that the model replies; a model that thinks is cut off, which is a reply too."""
_ASK = [{"role": "user", "content": "Reply with the word OK and nothing else."}]


@dataclass(frozen=True, slots=True)
class Listing:
    """What `GET /models` of an endpoint says; without `models` it does not say."""

    url: str
    models: Sequence[str] | None = None
    problem: str = ""
    fix: str = ""


def not_asked(setup: Setup) -> str:
    """Why no endpoint is asked, or nothing."""
    training = setup.training
    if training.settings_problems:
        return "the settings are not valid"
    if not training.asks_mentor():
        return f"strategy {training.mentor_strategy} asks no mentor"
    if training.mentor_backend != BackendKind.OPENAI:
        return f"a mentor of kind {training.mentor_backend} is loaded by the training itself"
    return ""


def check_key(setup: Setup) -> Finding:
    """Is the variable with the key set. The key itself is never shown."""
    if why := not_asked(setup):
        return skipped("key", why)
    name = _key_name(setup)
    try:
        read_key(name)
    except ConfigError as error:
        shown = name if setup.training.mentor_api_key_env is None else "the variable that mentor_api_key_env names"
        return fail("key", str(error), f"export {shown} before the training starts, for all its processes")
    return ok("key", "none needed" if name is None else f"the variable {name} is set")


def check_endpoint(setup: Setup) -> tuple[Finding, list[Listing]]:
    """Does something that speaks the API answer at every URL, and how fast."""
    if why := not_asked(setup):
        return skipped("endpoint", why), []
    key = outcome_of(lambda: read_key(_key_name(setup)))
    if isinstance(key, Exception):
        return skipped("endpoint", "the key is missing"), []
    started = time.monotonic()
    listings = [list_models(url, key) for url in base_urls(setup.training.mentor_base_url)]
    seconds = (time.monotonic() - started) / len(listings)
    broken = [listing for listing in listings if listing.problem]
    if broken:
        found = "; ".join(f"{listing.url} {listing.problem}" for listing in broken)
        return fail("endpoint", found, broken[0].fix), listings
    where = ", ".join(listing.url for listing in listings)
    return ok("endpoint", f"{where} answers in {seconds:.2f} s", seconds=seconds), listings


def check_model(setup: Setup, listings: Sequence[Listing]) -> Finding:
    """Does a chat request in the name of the model bring a reply, on every endpoint."""
    if why := not_asked(setup):
        return skipped("model", why)
    if not listings or any(listing.problem for listing in listings):
        return skipped("model", "no endpoint to ask")
    model, unlisted, replies = setup.training.mentor_model, [], []
    for listing in listings:
        reply, seconds = _ask_once(setup, listing.url)
        replies.append(seconds)
        absent = listing.models is not None and model not in listing.models
        unlisted += [listing.url] if absent else []
        if isinstance(reply, Exception):
            return _refused(setup, listing, absent, reply)
    found = f"{model} replies in {max(replies):.2f} s"
    if unlisted:
        return ok("model", f"{found}, though {', '.join(unlisted)} does not list it", seconds=max(replies))
    return ok("model", found, seconds=max(replies))


def list_models(url: str, key: str) -> Listing:
    """Ask an endpoint for its models."""
    wrong = outcome_of(lambda: check_base_url(url))
    if isinstance(wrong, Exception):
        return Listing("mentor_base_url", problem=f"is wrong: {wrong}", fix="correct mentor_base_url")
    with closing(API(url, key)) as api:
        answer = outcome_of(lambda: api.get("/models", timeout=_LISTING_SECONDS))
    if isinstance(answer, Exception):
        fix = "start the server, or correct host, port and scheme of the URL"
        return Listing(url, problem=str(answer).removeprefix(f"{url} "), fix=fix)
    return _listing(url, answer)


def _listing(url: str, answer: Answer) -> Listing:
    status = answer.status
    if status in (401, 403):
        fix = "name the variable with a valid key in mentor_api_key_env"
        return Listing(url, problem=f"refuses the key: HTTP {status}", fix=fix)
    if "html" in answer.headers.get("Content-Type", "") or answer.body.lstrip()[:1] == b"<":
        hint = "" if url.endswith("/v1") else f", probably {url}/v1"
        fix = f"give the root of the API as mentor_base_url, usually ending in /v1{hint}"
        return Listing(url, problem=f"answers HTTP {status} with HTML instead of JSON", fix=fix)
    if status != 200:
        return Listing(url)  # an optional route; the chat request tells
    listed: Any = answer.parsed()
    models = outcome_of(lambda: [str(entry["id"]) for entry in listed["data"]])
    return Listing(url, models=None if isinstance(models, Exception) else models)


def base_urls(setting: str | None) -> list[str]:
    """The endpoints that `mentor_base_url` names, without a slash at the end."""
    return [url.strip().rstrip("/") for url in (setting or root_of(None)).split(",") if url.strip()]


def _ask_once(setup: Setup, url: str) -> tuple[Reply | Exception, float]:
    settings = replace(setup.settings, mentor_max_tokens=_FEW_TOKENS)
    if settings.mentor_base_url is not None:
        settings = replace(settings, mentor_base_url=url)
    backend = outcome_of(lambda: build_backend(settings))
    if isinstance(backend, Exception):
        return backend, 0.0
    started = time.monotonic()
    reply = outcome_of(lambda: backend.chat(_ASK, role=Role.JUDGMENT, timeout=settings.mentor_call_timeout))
    seconds = time.monotonic() - started
    _close(backend)
    return reply, seconds


def _refused(setup: Setup, listing: Listing, absent: bool, error: Exception) -> Finding:
    model = setup.training.mentor_model
    if not absent:
        fix = "read the server's log; mentor_call_timeout, mentor_model and mentor_extra_body decide what is sent"
        return fail("model", f"{model} does not reply: {describe(error)}", fix)
    served = ", ".join((listing.models or ())[:_SHOWN_MODELS]) or "none"
    fix = f"set mentor_model to one that is served: {served}"
    return fail("model", f"{listing.url} does not serve {model!r} but {served}: {describe(error)}", fix)


def _key_name(setup: Setup) -> str | None:
    training = setup.training
    if training.mentor_base_url is None and training.mentor_api_key_env is None:
        return "OPENAI_API_KEY"
    name: str | None = training.mentor_api_key_env
    return name


def _close(backend: Any) -> None:
    if hasattr(backend, "close"):
        backend.close()

"""What a failed request to an OpenAI-compatible endpoint means: for the caller, for the breaker, for a person."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp

from trl_mentor.backends.http_client import Answer
from trl_mentor.errors import AccessDeniedError, BackendError, RequestRefusedError
from trl_mentor.records import Usage

_SHOWN = 400

_ABOUT_THE_REQUEST = frozenset({400, 413, 422})
"""Statuses that say nothing about other requests. 403 may, but then the endpoint refuses what the mentor is about."""

_WITHOUT_SCHEMAS = frozenset({400, 404, 405, 415, 422, 501})
"""Statuses with which a server may refuse a `response_format` that it does not know."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request brought no reply; free of the client's own errors, which hold the request and its headers."""

    kind: type[BackendError]
    text: str
    status: int | None = None
    retry_after: str | None = None
    lost: bool = False
    """Whether it ended on the way to the endpoint or back."""
    usage: Usage = field(default_factory=Usage)
    """Tokens that the endpoint counted for an answer that is no reply."""

    def may_come_from_the_schema(self, *, accepted_before: bool) -> bool:
        """Whether the same request without `response_format` may succeed."""
        return self.status in _WITHOUT_SCHEMAS or (self.status == 500 and not accepted_before)


def refused(answer: Answer, *, model: str, key_name: str | None, hide: Callable[[str], str]) -> Failure:
    """The failure that a status means.

    `key_name` is the variable that holds the key, None if none was sent; `hide` takes the key out of a text.
    """
    status = answer.status
    text = _cut(hide(f"answered HTTP {status}: {_message(answer)}"))
    advice = hide(_advice(answer, model, key_name))
    kind = AccessDeniedError if status == 401 else BackendError
    return Failure(
        RequestRefusedError if status in _ABOUT_THE_REQUEST else kind,
        f"{text}{advice and f' ({advice})'}",
        status,
        answer.headers.get("Retry-After"),
    )


def broken(error: Exception, *, hide: Callable[[str], str]) -> Failure:
    """The failure that an error of the HTTP client means, or of reading the answer."""
    if isinstance(error, BackendError):
        return Failure(BackendError, _cut(hide(f"failed: {error}")), usage=error.usage)
    name = type(error).__name__
    # A certificate that is not trusted is a ValueError too, and so is an address that is none.
    if isinstance(error, ValueError) and not isinstance(error, aiohttp.ClientConnectionError):
        kind = RequestRefusedError if isinstance(error, UnicodeEncodeError) else BackendError
        return Failure(kind, _cut(hide(f"cannot be asked: {name}: {error}")))
    if isinstance(error, aiohttp.ClientResponseError):
        return Failure(BackendError, _cut(hide(f"gave no HTTP answer: {name}: {error.message}")), lost=True)
    text = re.sub(r"//[^/\s]*@", "//", str(error))  # a proxy may have a password
    return Failure(BackendError, _cut(hide(f"cannot be reached: {name}: {text}")), lost=True)


def _cut(text: str) -> str:
    """What is hidden has to be so before: of a key that is cut a part would be left."""
    return text[:_SHOWN].rstrip()


def _message(answer: Answer) -> str:
    """What the body of an error says: OpenAI's `error.message`, or else all of it, with JSON's escapes undone."""
    parsed = answer.parsed()
    error = parsed.get("error") if isinstance(parsed, dict) else None
    said = error.get("message") if isinstance(error, dict) else None
    if isinstance(said, str) and said:
        return said
    return " ".join((answer.body.decode(errors="replace") if parsed is None else str(parsed)).split())


def _advice(answer: Answer, model: str, key_name: str | None) -> str:
    status = answer.status
    if status in (401, 403):
        if key_name is None:
            return "no key was sent; name the variable that holds it in api_key_env"
        return f"check the key in the variable {key_name}"
    if status == 404:
        return f"base_url must be the root of the API, usually ending in /v1, and serve {model!r}"
    if 300 <= status < 400:
        shown = _target(answer.headers.get("Location", ""))
        return f"it redirects to {shown}; redirects are not followed, give the final address as base_url"
    return ""


def _target(location: str) -> str:
    """The address without what may be secret: user, password, query. The caller hides the key, also in the path."""
    try:
        target = urlsplit(location)
        port = f":{target.port}" if target.port else ""
    except ValueError:
        return "what is no address"
    return f"{target.scheme}://{target.hostname}{port}{target.path}" if target.hostname else f"the path {target.path}"

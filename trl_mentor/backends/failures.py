"""What a failed request to an OpenAI-compatible endpoint means: for the caller, for the breaker, for a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import openai

from trl_mentor.errors import AccessDeniedError, BackendError, RequestRefusedError

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

    def may_come_from_the_schema(self, *, accepted_before: bool) -> bool:
        """Whether the same request without `response_format` may succeed."""
        return self.status in _WITHOUT_SCHEMAS or (self.status == 500 and not accepted_before)


def read_failure(error: Exception, *, model: str, key_name: str | None, hide: Callable[[str], str]) -> Failure:
    """`key_name` is the variable that holds the key, None if none was sent; `hide` takes the key out of a text."""
    if isinstance(error, openai.APIStatusError):
        status = error.status_code
        text = hide(f"answered HTTP {status}: {error.message}")  # before it is cut, or a part of the key is left
        advice = hide(_advice(error, model, key_name))
        kind = AccessDeniedError if status == 401 else BackendError
        return Failure(
            RequestRefusedError if status in _ABOUT_THE_REQUEST else kind,
            f"{text[:400].rstrip()}{advice and f' ({advice})'}",
            status,
        )
    if isinstance(error.__cause__, BackendError):
        return Failure(BackendError, hide(str(error.__cause__)))
    if isinstance(error, openai.APIConnectionError):
        return Failure(BackendError, hide(f"could not be reached: {error} {error.__cause__ or ''}")[:400].rstrip())
    kind = RequestRefusedError if isinstance(error, UnicodeEncodeError) else BackendError
    return Failure(kind, hide(f"cannot be asked: {type(error).__name__}: {error}")[:400].rstrip())


def _advice(error: openai.APIStatusError, model: str, key_name: str | None) -> str:
    status = error.status_code
    if status in (401, 403):
        if key_name is None:
            return "no key was sent; name the variable that holds it in api_key_env"
        return f"check the key in the variable {key_name}"
    if status == 404:
        return f"base_url must be the root of the API, usually ending in /v1, and serve {model!r}"
    if 300 <= status < 400:
        target = urlsplit(error.response.headers.get("location", ""))
        shown = f"{target.scheme}://{target.hostname}" if target.hostname else "another path"
        return f"it redirects to {shown}; redirects are not followed, give the final address as base_url"
    return ""

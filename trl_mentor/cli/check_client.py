"""A client for the requests that are not the mentor's own; what an endpoint says back of the key is not shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import openai

from trl_mentor.backends.endpoint import own_headers
from trl_mentor.backends.key_guard import KeyGuard

_SHOWN = 400


@contextmanager
def guarded_client(url: str, key: str, *, timeout: float, max_retries: int = 0) -> Iterator[openai.OpenAI]:
    """A client that follows no redirect and logs no key. Raises `openai.OpenAIError` and `ValueError` when asked."""
    with openai.OpenAI(
        api_key=key,
        base_url=url,
        max_retries=max_retries,
        timeout=timeout,
        default_headers=own_headers(key),
        http_client=openai.DefaultHttpxClient(follow_redirects=False),
    ) as client:
        KeyGuard(key).guard_logs(client)
        yield client


def reason(error: Exception, key: str) -> str:
    """Type, message and cause of an error, the key taken out before the text is cut."""
    text = f"{type(error).__name__}: {error} {error.__cause__ or ''}"
    return " ".join(KeyGuard(key).hide(text).split())[:_SHOWN]

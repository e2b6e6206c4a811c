"""The HTTP client under the OpenAI SDK, with bounds: no reply of any size, no redirect to anywhere."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from typing import Any

import openai

from trl_mentor.backends.turns import end_when_sent
from trl_mentor.errors import BackendError

MAX_BYTES = 8_000_000
"""The largest answer that is read: far above any reply that a role can use."""

# The SDK is built on httpx or, since its version 3, on httpx2, which differ in nothing that is used here.
HTTPX: Any = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])


def bounded_client() -> Any:
    """A client with the SDK's own defaults otherwise.

    It asks for answers that are not compressed and takes no other, because the size of those shows too late. It
    follows no redirect: questions and answers, if not the key, would go where nobody sent them.
    """
    return openai.DefaultAsyncHttpxClient(
        follow_redirects=False,
        headers={"Accept-Encoding": "identity"},
        event_hooks={"request": [end_when_sent], "response": [_bound]},
    )


async def _bound(response: Any) -> None:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise BackendError(f"the answer is compressed ({encoding[:40]!r}) although it was asked for as it is")
    response.stream = _Bounded(response.stream)


class _Bounded(HTTPX.AsyncByteStream):  # type: ignore[misc]
    """The body of an answer, which ends with `BackendError` where it exceeds `MAX_BYTES`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_BYTES:
                raise BackendError(f"the answer is longer than {MAX_BYTES // 1_000_000} MB and was not read on")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()

"""The API of one endpoint: requests end on time, are repeated where that helps, and keep the key to themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import aiohttp

from trl_mentor.backends.endpoint import PLACEHOLDER_KEY
from trl_mentor.backends.failures import Failure, broken, refused
from trl_mentor.backends.http_client import Answer, HTTPClient
from trl_mentor.backends.key_guard import KeyGuard
from trl_mentor.backends.request_loop import RequestLoop
from trl_mentor.backends.retry import retry_delay
from trl_mentor.errors import BackendError

T = TypeVar("T")


@dataclass
class Tries:
    """The requests of one call: until when there may be further ones, and how many were made."""

    deadline: float
    made: int = 0


class API:
    """Asks the API at `url` in the name of `model`; safe to call from any number of threads.

    `key_name` is the environment variable that holds the key, for advice; `max_retries` counts further tries of
    `post` after a lost connection or a status of 408, 409, 429 or 5xx.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        model: str = "",
        key_name: str | None = None,
        max_retries: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url
        self._model = model
        self._key_name = None if key == PLACEHOLDER_KEY else key_name
        self._max_retries = max_retries
        self._guard = KeyGuard(key)
        self._guard.guard_logs(self)
        self.hide = self._guard.hide
        self._client = HTTPClient(url, {**(headers or {}), "Authorization": f"Bearer {key}"})
        self._requests = RequestLoop(self._client.close)

    def get(self, path: str, *, timeout: float) -> Answer:
        """The answer of whatever status. Raises `BackendError` if there is none."""

        async def once(tries: Tries) -> Answer | Failure:
            try:
                return await self._client.request(path)
            except (aiohttp.ClientError, OSError, ValueError, BackendError) as error:
                return broken(error, hide=self.hide)

        return self.run(once, timeout)

    def run(self, request: Callable[[Tries], Coroutine[Any, Any, T | Failure]], timeout: float) -> T:
        """What the coroutine returns, which keeps to its deadline and counts its requests.

        Raises `BackendError`, with their number, for a failure or a delay.
        """
        tries = Tries(time.monotonic() + timeout)
        try:
            if timeout <= 0:
                raise BackendError(f"no time left to ask {self._model!r}")
            outcome = self._requests.run(lambda: _in_time(request, tries, timeout), timeout)
        except BackendError as error:
            error.requests = tries.made
            raise
        # Raised here, in no except block: the client's errors hold the request and its headers.
        if isinstance(outcome, Failure):
            failure = outcome.kind(f"{self.url} {outcome.text}")
            failure.requests, failure.usage = tries.made, outcome.usage
            raise failure
        return outcome

    async def post(self, path: str, body: Mapping[str, Any], read: Callable[[object], T], tries: Tries) -> T | Failure:
        """What `read` makes of the JSON of the answer, None for what is no JSON; `BackendError` if it cannot."""
        for attempt in range(self._max_retries + 1):
            tries.made += 1
            outcome = await self._try(path, body, read)
            if not isinstance(outcome, Failure):
                return outcome
            delay = retry_delay(outcome, attempt)
            if delay is None or attempt == self._max_retries:
                break
            if time.monotonic() + delay >= tries.deadline:
                return replace(outcome, text=f"{outcome.text}; a retry in {delay:.1f} s would come too late")
            await asyncio.sleep(delay)
        return outcome

    def close(self) -> None:
        """End requests in flight and release the connections; later calls raise `BackendError`."""
        self._requests.close()

    async def _try(self, path: str, body: Mapping[str, Any], read: Callable[[object], T]) -> T | Failure:
        try:
            answer = await self._client.request(path, body)
            if 200 <= answer.status < 300:
                return read(answer.parsed())
        except (aiohttp.ClientError, OSError, ValueError, BackendError) as error:
            return broken(error, hide=self.hide)
        return refused(answer, model=self._model, key_name=self._key_name, hide=self.hide)


async def _in_time(
    request: Callable[[Tries], Coroutine[Any, Any, T | Failure]], tries: Tries, timeout: float
) -> T | Failure:
    try:
        async with asyncio.timeout(timeout):
            return await request(tries)
    except TimeoutError:
        return Failure(BackendError, f"gave no complete reply within {timeout:.1f} s")

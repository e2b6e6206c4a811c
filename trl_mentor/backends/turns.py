"""Requests begin one after the other.

An event loop takes a step of each request in turn. Of many that begin together all would be sent late instead of the
first ones early, all replies would come at once, and the endpoint and this process would wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

_LONGEST = 0.05
"""Seconds after which a turn ends in any case."""

_WAITS = ("connect_tcp.started", "connect_unix_socket.started", "send_request_body.started")
"""Events of the HTTP client after which a request only waits for the network, or has nothing left to do."""

_turn: ContextVar[Callable[[], None] | None] = ContextVar("turn", default=None)
"""Ends the turn of the request that runs in this context."""


class Turns:
    """Lets one request at a time do its work before it is sent; its wait for the reply is no part of its turn."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(1)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A turn, which `end_when_sent` ends before the block does."""
        await self._free.acquire()
        held = True

        def end() -> None:
            nonlocal held
            if held:
                held = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(_LONGEST, end)
        token = _turn.set(end)
        try:
            yield
        finally:
            _turn.reset(token)
            timer.cancel()
            end()


async def end_when_sent(request: Any) -> None:
    """A hook of the HTTP client for each request."""
    end = _turn.get()
    if end is None:
        return

    async def heard(event: str, info: object) -> None:
        if event.endswith(_WAITS):
            end()

    request.extensions = {**request.extensions, "trace": heard}

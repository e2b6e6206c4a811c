"""One thread with an event loop for all requests of a client, so that blocking calls can be ended on time."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from trl_mentor.errors import BackendError
from trl_mentor.mentor_pool import outcome_of

T = TypeVar("T")

_GRACE = 5.0
"""Seconds on top of the timeout after which a caller stops waiting for the event loop itself."""


class RequestLoop:
    """Begins with the first request; ends when it is closed or dropped, and then releases the connections.

    In a forked process it begins anew, as the thread stays with the parent.
    """

    def __init__(self, close_client: Callable[[], Awaitable[None]]) -> None:
        self._close_client = close_client
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._closed = False

    def run(self, request: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        """What the coroutine returns or raises; it has to end by itself within `timeout` seconds."""
        with self._lock:
            loop = self._running()
            future = asyncio.run_coroutine_threadsafe(request(), loop)
        try:
            return future.result(timeout + _GRACE)
        except CancelledError:
            failure = "the backend was closed during a request"
        except TimeoutError:
            future.cancel()
            failure = f"the request loop did not answer within {timeout + _GRACE:.1f} s"
        raise BackendError(failure)

    def close(self) -> None:
        """End requests in flight and release the connections; later ones raise `BackendError`."""
        with self._lock:
            loop, thread, self._closed, self._loop = self._loop, self._thread, True, None
        if loop is not None and thread is not None:
            _end(loop, self._close_client, self._process)
            thread.join(_GRACE)  # at once in a forked process, where it does not run

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise BackendError("the backend is closed")
        if self._loop is None or self._process != os.getpid():
            self._process = os.getpid()
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(_DaemonThreads())
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="mentor-requests", daemon=True)
            self._thread.start()
            weakref.finalize(self, _end, self._loop, self._close_client, self._process)
        return self._loop


class _DaemonThreads(ThreadPoolExecutor):
    """For the lookups of host names, which block: the interpreter would wait at its end for one that hangs."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            outcome = outcome_of(partial(fn, *args, **kwargs))
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        threading.Thread(target=work, name="mentor-lookup", daemon=True).start()
        return future


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped. Refers to no backend, so that one that is dropped can be collected."""
    try:
        loop.run_forever()
    finally:
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, close_client: Callable[[], Awaitable[None]], process: int) -> None:
    if process != os.getpid():
        return  # a fork's copy: the loop is its parent's

    async def finish() -> None:
        try:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await close_client()
        finally:
            loop.stop()

    with suppress(RuntimeError):  # it is closed already
        loop.call_soon_threadsafe(lambda: loop.create_task(finish()))

"""HTTP requests of one event loop to one API, with bounds: no answer of any size, no redirect to anywhere."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from trl_mentor.errors import BackendError, ConfigError

MAX_BYTES = 8_000_000
"""The largest answer that is read: far above any reply that a role can use."""

_KEPT_SECONDS = 4.0
"""How long an idle connection is kept: uvicorn, and so vLLM, ends one after 5 seconds, and a request may meet that."""

_LARGE_BODY = 2**20
"""Bytes from which aiohttp warns of a body that is sent in one piece."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of any status, read to its end. It may say the key back, so it is not shown."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    def parsed(self) -> object:
        """The body as JSON, None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class HTTPClient:
    """Connections are opened as needed and kept; how many there are is for the callers to bound.

    It asks for answers that are not compressed and takes no other, because the size of those shows too late. It
    follows no redirect: questions and answers, if not the key, would go where nobody sent them. It keeps no cookies.
    Of the environment it takes `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, and raises `ConfigError` for
    a proxy that does not speak HTTP.
    """

    def __init__(self, root: str, headers: Mapping[str, str]) -> None:
        self._root = root
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "trl-mentor"}
        self._headers |= headers
        self._proxy = _proxy_for(root)
        # By loop, because a process that was forked has one of its own.
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    async def request(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """The answer to `POST`, or to `GET` without a body.

        Raises `aiohttp.ClientError` or `OSError` for what happens on the way, `ValueError` for what cannot be sent,
        `BackendError` for an answer that is not taken. It has no timeout of its own.
        """
        method, data = ("GET", None) if body is None else ("POST", _encoded(body))
        asked = self._session().request(
            method,
            self._root + path,
            data=data,
            headers=None if data is None else {"Content-Type": "application/json"},
            proxy=self._proxy,
            allow_redirects=False,
        )
        async with asked as response:
            return Answer(response.status, response.headers, await _read(response))

    async def close(self) -> None:
        """Release the connections of the running loop."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # the loop closes sockets in its next turn

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            self._sessions[loop] = aiohttp.ClientSession(
                connector=_Connector(limit=0, keepalive_timeout=_KEPT_SECONDS, resolver=aiohttp.ThreadedResolver()),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._sessions[loop]


class _Connector(aiohttp.TCPConnector):
    """Counts as closed in a forked process, where closing a copy would take the parent's sockets out of its loop."""

    def __init__(self, **options: Any) -> None:
        self._process = os.getpid()
        super().__init__(**options)

    @property
    def closed(self) -> bool:
        return super().closed or os.getpid() != self._process

    def __del__(self, *defaults: Any) -> None:
        if not self.closed:
            super().__del__(*defaults)


def _encoded(body: Mapping[str, Any]) -> bytes | io.BytesIO:
    data = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return io.BytesIO(data) if len(data) > _LARGE_BODY else data


async def _read(response: aiohttp.ClientResponse) -> bytes:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise BackendError(f"the answer is compressed ({encoding[:40]!r}) although it was asked for as it is")
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_BYTES:
            raise BackendError(f"the answer is longer than {MAX_BYTES // 1_000_000} MB and was not read on")
        chunks.append(chunk)
    return b"".join(chunks)


def _proxy_for(root: str) -> str | None:
    parts, proxies = urlsplit(root), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return None
    kind, _, rest = proxy.rpartition("://")
    if kind.lower() not in ("", "http", "https"):
        raise ConfigError(
            f"the environment names a proxy of kind {kind!r} for {parts.hostname}; expected http or https. Set "
            "another one, or exempt the host with NO_PROXY"
        )
    return f"{kind or 'http'}://{rest}"

"""An OpenAI-compatible endpoint for benchmarks and tests, on asyncio alone, which knows the four agents.

    python benchmarks/stub_server.py --latency 0.2

prints its URL as a line of JSON and serves until it is stopped. `spawned` runs it, or a script that calls `serve` with
a player of its own, in a process; `threaded` in a thread of this one. `GET /stats` counts what was asked, `GET /log`
lists what players have written down.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BACKLOG = 4096
READ_LIMIT = 64 * 2**20

GOOD: Mapping[str, str] = {
    "attribution": json.dumps({"misconceptions": ["counts a quantity of the question twice"]}),
    "generation": "Which of the quantities in the question did you use more often than it stands there?",
    "judgment": json.dumps(
        {"critique": "It points to the mistake and leaves the work to the student.", "verdict": "HIGH"}
    ),
    "repair": json.dumps({"hint": "Say in your own words what each quantity of the question stands for."}),
}
"""A reply that each agent can use."""

_ROLE_OF_FIELD = {"misconceptions": "attribution", "verdict": "judgment", "hint": "repair"}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: `role` is the agent that asks, "" where it cannot be told."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    role: str = ""


Player = Callable[[Asked, asyncio.StreamWriter, "Stub"], Awaitable[bool]]
"""Writes the answer; whether the connection stays open."""


@dataclass
class Stub:
    """A server's state, read by its players and by whoever holds it in a thread."""

    play: Player
    url: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    """Requests by role."""
    busy: int = 0
    most_busy: int = 0
    """Most chat requests that were open at once."""
    connections: int = 0
    log: list[dict[str, Any]] = field(default_factory=list)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it."""
        self.connections += 1
        try:
            while (asked := await _read(reader)) is not None and await self._answer(asked, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        if asked.method == "GET":
            await send(writer, json.dumps(self._read_out(asked.path)).encode())
            return True
        self.asked[asked.role] += 1
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            return await self.play(asked, writer, self)
        finally:
            self.busy -= 1

    def _read_out(self, path: str) -> Any:
        if path.endswith("/log"):
            return self.log
        if path.endswith("/models"):
            return {"object": "list", "data": [{"id": "stub", "object": "model", "owned_by": "stub", "created": 0}]}
        return {"asked": dict(self.asked), "most_busy": self.most_busy, "connections": self.connections}


def good_player(latency: float) -> Player:
    """Replies that every agent can use, after `latency` seconds."""

    async def play(asked: Asked, writer: asyncio.StreamWriter, stub: Stub) -> bool:
        await asyncio.sleep(latency)
        await send(writer, completion(GOOD.get(asked.role, GOOD["generation"])))
        return True

    return play


def completion(content: Any, *, finish_reason: str = "stop", **message: Any) -> bytes:
    """The body of a chat completion."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content, **message},
        "finish_reason": finish_reason,
    }
    usage = {"prompt_tokens": 300, "completion_tokens": 30, "total_tokens": 330}
    whole = {"id": "stub-1", "object": "chat.completion", "created": 0, "model": "stub", "choices": [choice]}
    return json.dumps({**whole, "usage": usage}).encode()


async def send(
    writer: asyncio.StreamWriter,
    body: bytes,
    *,
    status: int = 200,
    content_type: str = "application/json",
    **headers: str,
) -> None:
    """A whole HTTP response; an underscore in the name of a header stands for a dash."""
    lines = [f"HTTP/1.1 {status} Stub", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()


def role_of(body: Any) -> str:
    """Which agent asks: by the schema of the reply if there is one, else by what stands after the last block."""
    if not isinstance(body, dict):
        return ""
    schema = json.dumps(body.get("response_format") or "")
    for name, role in _ROLE_OF_FIELD.items():
        if f'"{name}"' in schema:
            return role
    instruction = re.split(r"</\w+>", prompt_of(body))[-1]
    for name, role in _ROLE_OF_FIELD.items():
        if f'"{name}"' in instruction:
            return role
    return "generation"


def prompt_of(body: Mapping[str, Any]) -> str:
    """The first message of the user: further ones ask for the same once more."""
    said = [message.get("content", "") for message in body.get("messages", ()) if message.get("role") == "user"]
    return str(said[0]) if said else ""


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    raw = await reader.readexactly(int(headers.get("content-length", 0)))
    body = json.loads(raw) if raw else None
    return Asked(method, path, headers, body, role_of(body))


async def _serve(stub: Stub, ready: Callable[[Stub], object], until: asyncio.Event) -> None:
    server = await asyncio.start_server(stub.connected, "127.0.0.1", 0, backlog=BACKLOG, limit=READ_LIMIT)
    stub.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    ready(stub)
    await until.wait()
    server.close()


def serve(play: Player) -> None:
    """Serve for ever, after a line of JSON with the URL on standard output."""

    async def main() -> None:
        await _serve(Stub(play), lambda stub: print(json.dumps({"url": stub.url}), flush=True), asyncio.Event())

    asyncio.run(main())


@contextmanager
def spawned(*arguments: str, script: Path = Path(__file__)) -> Iterator[str]:
    """The URL of a server in a process of its own: this script, or another that calls `serve`."""
    with subprocess.Popen([sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["url"])
        finally:
            process.kill()


@contextmanager
def threaded(play: Player) -> Iterator[Stub]:
    """A server in a thread of this process, whose state can be read."""
    loop, stub, ready, until = asyncio.new_event_loop(), Stub(play), threading.Event(), asyncio.Event()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(_serve(stub, lambda _: ready.set(), until))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=run, name="stub-server", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield stub
    finally:
        loop.call_soon_threadsafe(until.set)
        thread.join()


def fetch(url: str, what: str) -> Any:
    """`stats` or `log` of a server."""
    with urllib.request.urlopen(f"{url}/{what}") as response:
        return json.load(response)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve good replies for the four agents.")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds before each reply")
    serve(good_player(parser.parse_args().latency))

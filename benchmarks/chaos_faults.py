"""What an endpoint may do instead of answering, and the server that does it.

    python benchmarks/chaos_faults.py --seed 7

serves until it is stopped. What happens to a request depends on the seed, its text, and how often the same was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from chaos_replies import REPLIES, Written, good
from chaos_world import exercise, number_in
from stub_server import Asked, Player, Stub, completion, prompt_of, send, serve

from trl_mentor.quoting import read_blocks

LATENCY = 0.01
HANG = 30.0

Fault = Callable[[bytes, asyncio.StreamWriter, random.Random], Awaitable[bool]]
"""Answers with something else than the body of a good reply; whether the connection stays open."""

OUTAGE_EVERY, OUTAGE_SECONDS = 800, 1.0
"""After so many requests everything is refused for so long: the endpoint counts as down and later as up again."""

Fault = Callable[[bytes, asyncio.StreamWriter, random.Random], Awaitable[bool]]
"""Answers with something else than the body of a good reply; whether the connection stays open."""

OUTAGE_EVERY, OUTAGE_FOR = 1000, 50
"""Of so many requests the last ones are all refused, so that the endpoint counts as down and later as up again."""


def _status(status: int, body: bytes = b'{"error": {"message": "busy"}}', *, kind: str = "application/json") -> Fault:
    async def play(reply: bytes, writer: asyncio.StreamWriter, dice: random.Random) -> bool:
        await send(writer, body, status=status, content_type=kind)
        return True

    return play


def _retry_after(*values: str) -> Fault:
    async def play(reply: bytes, writer: asyncio.StreamWriter, dice: random.Random) -> bool:
        await send(writer, b"{}", status=dice.choice((429, 503)), Retry_After=dice.choice(values))
        return True

    return play


def _bytes(*parts: bytes) -> Fault:
    """Writes these bytes as they are, then closes; `%REPLY%` is the body, `%LENGTH%` its length."""

    async def play(reply: bytes, writer: asyncio.StreamWriter, dice: random.Random) -> bool:
        part = dice.choice(parts)
        writer.write(part.replace(b"%LENGTH%", str(len(reply)).encode()).replace(b"%REPLY%", reply))
        await writer.drain()
        return False

    return play


def _body(*bodies: bytes, content_type: str = "application/json", **headers: str) -> Fault:
    async def play(reply: bytes, writer: asyncio.StreamWriter, dice: random.Random) -> bool:
        body = dice.choice(bodies).replace(b"%REPLY%", reply)
        await send(writer, body, content_type=content_type, **headers)
        return True

    return play


async def _reset(reply: bytes, writer: asyncio.StreamWriter, dice: random.Random) -> bool:
    """Reset the connection, sometimes in the middle of the body."""
    if dice.random() < 0.5:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(reply)}\r\n\r\n".encode()
        writer.write(head + reply[: len(reply) // 2])
        await writer.drain()
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
    return False


async def _close(reply: bytes, writer: asyncio.StreamWriter, dice: random.Random) -> bool:
    return False


async def _hang(reply: bytes, writer: asyncio.StreamWriter, dice: random.Random) -> bool:
    """Say nothing, or only that it begins."""
    if dice.random() < 0.5:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n{")
    await asyncio.sleep(HANG)
    return False


async def _trickle(reply: bytes, writer: asyncio.StreamWriter, dice: random.Random) -> bool:
    """A byte now and then, so that no pause is ever long."""
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(reply)}\r\n\r\n".encode())
    for byte in reply:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)
    return True


async def _redirect(reply: bytes, writer: asyncio.StreamWriter, dice: random.Random) -> bool:
    await send(writer, b"", status=dice.choice((302, 307, 308)), Location="/v1/chat/completions")
    return True


HTML = b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_LENGTH = b"Content-Length: %LENGTH%\r\n\r\n"
_ODD_SHAPES = tuple(
    json.dumps(shape).encode()
    for shape in (
        {"choices": []},
        {"choices": None},
        {"choices": "none"},
        {"choices": [None]},
        {"choices": [7]},
        {"choices": {"0": {"message": {"content": "Look again."}}}},
        {"choices": [{"message": None}]},
        {"choices": [{"message": "Look again."}]},
        {"choices": [{"text": "Look again."}]},
        {"error": {"message": "out of memory", "code": 500}},
        {"object": "error", "message": "model is loading"},
        [],
        "Look again.",
        42,
        None,
    )
)
_ODD_USAGE = tuple(
    completion("Look again.").replace(b'"prompt_tokens": 300', b'"prompt_tokens": ' + value)
    for value in (b"-5", b'"many"', b"null", b"1e400", b"[1]", b"9" * 30)
)

FAULTS: Mapping[str, tuple[float, Fault]] = {
    "429": (3.0, _status(429)),
    "429_retry_after": (2.0, _retry_after("0", "0.1", "0.2", "1")),
    "429_absurd_retry_after": (1.0, _retry_after("86400", "1e308", "-5", "soon", "nan", "inf", "", "Mon, 99 Foo")),
    "500": (2.0, _status(500)),
    "503": (2.0, _status(503)),
    "502_html": (1.0, _status(502, HTML, kind="text/html")),
    "400": (0.5, _status(400)),
    "401": (0.2, _status(401, b'{"error": {"message": "Incorrect API key provided"}}')),
    "404_html": (0.5, _status(404, HTML, kind="text/html")),
    "418": (0.5, _status(418, b"\xff\xfe short and stout", kind="text/plain")),
    "redirect": (0.5, _redirect),
    "reset": (3.0, _reset),
    "closed": (2.0, _close),
    "hang": (1.0, _hang),
    "trickle": (1.0, _trickle),
    "html_with_200": (2.0, _status(200, HTML, kind="text/html")),
    "html_called_json": (1.0, _body(HTML)),
    "empty_body": (2.0, _body(b"")),
    "blank_body": (1.0, _body(b"\n\n   \n")),
    "204": (0.5, _bytes(b"HTTP/1.1 204 No Content\r\n\r\n")),
    "truncated_json": (2.0, _body(completion("Look again.")[:60], b'{"choices": [{"message": {"content": "Look')),
    "two_bodies": (0.5, _body(b"%REPLY%%REPLY%")),
    "short_of_its_length": (1.0, _bytes(_OK + b"Content-Length: 90000\r\n\r\n%REPLY%")),
    "text_plain": (1.0, _body(b"%REPLY%", content_type="text/plain")),
    "octet_stream": (0.5, _body(b"%REPLY%", content_type="application/octet-stream")),
    "event_stream": (0.5, _body(b"data: %REPLY%\n\ndata: [DONE]\n\n", content_type="text/event-stream")),
    "invalid_utf8": (1.0, _body(b'{"choices": [{"message": {"content": "\xff\xfe\xed\xa0\x80"}}]}', b"\xff" * 40)),
    "claims_gzip": (0.5, _body(b"%REPLY%", Content_Encoding="gzip")),
    "bad_chunks": (1.0, _bytes(_OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n%REPLY%\r\n-1\r\n\r\n")),
    "endless_chunk": (0.5, _bytes(_OK + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n%REPLY%")),
    "two_lengths": (0.5, _bytes(_OK + b"Content-Length: 3\r\n" + _LENGTH + b"%REPLY%")),
    "wrong_version": (1.0, _bytes(b"HTTP/9.9 200 OK\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", b"\x16\x03\x01\x02\x00")),
    "old_version": (0.5, _bytes(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n%REPLY%")),
    "informational": (0.5, _bytes(b"HTTP/1.1 103 Early Hints\r\n\r\n" + _OK + _LENGTH + b"%REPLY%")),
    "huge_header": (0.5, _bytes(b"HTTP/1.1 200 OK\r\nX-Filler: " + b"a" * 200_000 + b"\r\n\r\n{}")),
    "odd_shape": (3.0, _body(*_ODD_SHAPES)),
    "odd_usage": (1.0, _body(*_ODD_USAGE)),
    "deep_json": (0.5, _body(b"[" * 200_000, b'{"choices":' * 50_000)),
    "nan_json": (0.5, _body(b'{"choices": NaN}', b'{"choices": ' + b"9" * 9_000 + b"}")),
}
"""What a server may do, with its share of the faults."""

CARRY_THE_REPLY = {
    "text_plain",
    "octet_stream",
    "old_version",
    "informational",
    "trickle",
    "claims_gzip",
    "two_lengths",
}
"""Faults from which a good reply may be read."""

FAULTY = 0.3
"""Share of requests that get a fault in place of a reply."""


def chaos_player(seed: int) -> Player:
    """Answers each request with a fault or some reply, and writes down which."""
    asked_before: Counter[str] = Counter()
    down_until = 0.0

    async def play(asked: Asked, writer: asyncio.StreamWriter, stub: Stub) -> bool:
        nonlocal down_until
        text = json.dumps(asked.body, sort_keys=True)
        asked_before[text] += 1
        dice = random.Random(hashlib.sha256(f"{seed} {asked_before[text]} {text}".encode()).digest())
        number = number_in(text)
        kind, written, fault = _choose(asked.role, number, dice)
        if len(stub.log) % OUTAGE_EVERY == OUTAGE_EVERY - 1:
            down_until = time.monotonic() + OUTAGE_SECONDS
        if time.monotonic() < down_until:
            kind, fault = "outage", _status(503)
        approves = asked.role == "judgment" and written.approves and (fault is None or kind in CARRY_THE_REPLY)
        drafts = read_blocks(prompt_of(asked.body), "draft")
        entry = {"exercise": number, "role": asked.role, "kind": kind, "approves": approves}
        stub.log.append({**entry, "draft": drafts[-1] if drafts else None})
        await asyncio.sleep(LATENCY)
        if fault is not None:
            return await fault(written.body(), writer, dice)
        await send(writer, written.body())
        return True

    return play


def _choose(role: str, number: int | None, dice: random.Random) -> tuple[str, Written, Fault | None]:
    about = exercise(number or 0)
    if dice.random() < FAULTY:
        kind = dice.choices(list(FAULTS), [share for share, _ in FAULTS.values()])[0]
        return kind, good(role, about, dice), FAULTS[kind][1]
    kind = dice.choices(list(REPLIES), [share for share, _ in REPLIES.values()])[0]
    return kind, REPLIES[kind][1](role, about, dice), None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve what endpoints do when they do not answer.")
    parser.add_argument("--seed", type=int, default=0)
    serve(chaos_player(parser.parse_args().seed))

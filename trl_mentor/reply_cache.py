"""The mentor's replies on disk, so that a run that is repeated or resumed gets them again without a request.

One SQLite file, in WAL mode: threads and other processes may use it at once, and SIGKILL costs no more than the reply
that was being written. It must be on a file system with working locks, as a local disk has.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from trl_mentor.plain import from_plain
from trl_mentor.records import Message, Reply, Role

CACHE_DIR = Path("mentor") / "cache"
"""Where a run keeps its replies, relative to `output_dir`."""

FORMAT = 1
"""Version of what is stored; an older or newer file is left alone and another one begun."""

_APPLICATION = 0x4D454E54
_TABLE = """\
CREATE TABLE IF NOT EXISTS replies
    (digest TEXT, draw INTEGER, reply TEXT, PRIMARY KEY (digest, draw)) WITHOUT ROWID
"""
_FILES = 5
_LONGEST_REPLY = 1_000_000
_WAIT_FOR_LOCK = 2.0
_PAUSE_AFTER_ERROR = 60.0

logger = logging.getLogger(__name__)


def request_digest(identity: str, role: Role, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> str:
    """SHA-256 over what determines a reply; `identity` is the backend's part in it: model, sampling and the like."""
    request = {"identity": identity, "role": str(role), "messages": list(messages), "schema": schema}
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode("ascii")).hexdigest()


class ReplyCache:
    """Replies by request and draw: the first, second and so on that the same request got.

    Nothing that the disk or the file does is raised. A file that is damaged or holds something else stays where it is
    and the next number is taken; a disk that is full, or locks that cannot be had, cost the cache and nothing else.
    A file that somebody deletes or moves away in use is begun anew. Each is logged once. Opened when it is first used.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._number = 0
        self._idle_until = 0.0
        self._warned = self._missed = False
        self._opened: tuple[int, int] | None = None

    @property
    def path(self) -> Path:
        """The file in use."""
        return self.directory / ("replies.sqlite" if not self._number else f"replies-{self._number}.sqlite")

    def get(self, digest: str, draw: int) -> Reply | None:
        """The stored reply, or None."""
        rows = self._run("SELECT reply FROM replies WHERE digest = ? AND draw = ?", digest, draw)
        return _read(rows[0][0]) if rows else None

    def put(self, digest: str, draw: int, reply: Reply) -> Reply:
        """Store a reply; returns the one that holds from now on, which is another if somebody was faster.

        So two groups that ask the same at the same time work with the same reply, now and whenever it is replayed.
        """
        kept = _kept(reply)
        if kept is None:
            return reply
        text = json.dumps(kept)
        self._run("INSERT OR IGNORE INTO replies VALUES (?, ?, ?)", digest, draw, text)
        stored = self.get(digest, draw)
        if stored is None:  # what is there cannot be read, or nothing can be stored at all
            self._run("REPLACE INTO replies VALUES (?, ?, ?)", digest, draw, text)
            return reply
        return replace(reply, text=stored.text, thinking=stored.thinking, truncated=stored.truncated)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._close()

    def _run(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement; none if it cannot be done."""
        with self._lock:
            while self._number < _FILES and time.monotonic() >= self._idle_until:
                try:
                    return self._open().execute(statement, values).fetchall()
                except (sqlite3.OperationalError, OSError) as error:
                    self._pause(error)
                except sqlite3.DatabaseError as error:
                    self._set_aside(error)
        return []

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and _file_at(self.path) != self._opened:
            self._begin_anew()
        if self._connection is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.path, timeout=_WAIT_FOR_LOCK, isolation_level=None, check_same_thread=False
            )
            self._connection = connection
            self._finalizer = weakref.finalize(self, connection.close)
            _prepare(connection)
            self._opened = _file_at(self.path)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._finalizer()
            self._connection = None

    def _begin_anew(self) -> None:
        """SQLite would go on writing into a file that nobody finds again."""
        self._close()
        if not self._missed:
            self._missed = True
            logger.warning(
                "trl-mentor: %s was deleted or moved away in use: replies are kept in a new file from now "
                "on, and those from before are asked for again. This is said once.",
                self.path,
            )

    def _set_aside(self, error: Exception) -> None:
        left = self.path
        self._close()
        self._number += 1
        logger.warning(
            "trl-mentor: the cached replies in %s cannot be used, from now on they are in %s: %s",
            left,
            self.path,
            error,
        )

    def _pause(self, error: Exception) -> None:
        self._close()
        self._idle_until = time.monotonic() + _PAUSE_AFTER_ERROR
        if not self._warned:
            self._warned = True
            logger.warning(
                "trl-mentor: the mentor's replies cannot be cached in %s; training goes on: %s", self.path, error
            )


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the table in a new file. Raises `DatabaseError` for a file that holds something else."""
    with suppress(sqlite3.OperationalError):  # somebody else may be doing it, and without it works too
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = tuple(
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if found != (_APPLICATION, FORMAT) and (tables or any(found)):
            raise sqlite3.DatabaseError("it is not a file of this version of trl-mentor")
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute(_TABLE)
    finally:
        connection.execute("COMMIT")


def _kept(reply: Reply) -> dict[str, Any] | None:
    """What is stored of a reply: not its tokens, which nobody pays for twice. None if it is odd or too long."""
    kept = {"text": reply.text, "thinking": reply.thinking, "truncated": bool(reply.truncated)}
    texts = [value for value in kept.values() if isinstance(value, str)]
    return kept if len(texts) == 2 and sum(map(len, texts)) <= _LONGEST_REPLY else None


def _read(text: Any) -> Reply | None:
    try:
        return from_plain(Reply, json.loads(text))  # type: ignore[no-any-return]
    except (ArithmeticError, TypeError, ValueError, KeyError, RecursionError):
        return None

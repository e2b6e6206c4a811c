"""A mentor whose replies are known beforehand: for tests, demos and dry runs. Standard library only."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.errors import BackendError, ConfigError
from trl_mentor.records import Message, Reply, Role, Usage

ScriptFunction = Callable[[Role, Sequence[Message]], str | Reply]
"""Computes a reply from the role that asks and its messages; it may raise."""

ScriptTable = Mapping[Role, str | Sequence[str | Reply | Exception]]
"""Replies by role: a string repeats for ever, a sequence is consumed in order and its exceptions are raised."""


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """One request that a `ScriptedBackend` received."""

    role: Role
    messages: tuple[Message, ...]
    """A copy, so later changes by the caller do not show."""


class ScriptedBackend:
    """A backend that answers from a script, at once, from any number of threads.

    `script` is a function `(role, messages) -> str | Reply` or a table of replies by role. Where the script gives a
    bare string, the usage counts its whitespace-separated words. `requests` holds everything asked, in order of
    arrival. A role that is missing from the table, or whose replies are used up, raises `BackendError`. A table with
    values of another kind raises `ConfigError` at construction.
    """

    def __init__(self, script: ScriptFunction | ScriptTable) -> None:
        self.requests: list[ScriptedRequest] = []
        self._lock = threading.Lock()
        self._answer: ScriptFunction = script if callable(script) else _table_function(script)

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        """Return (or raise) what the script says; `timeout` is not used, the answer is immediate."""
        request = ScriptedRequest(role, tuple(copy.deepcopy(list(messages))))
        with self._lock:
            self.requests.append(request)
        answer = self._answer(role, request.messages)
        if isinstance(answer, Reply):
            return answer
        prompt_words = sum(_count_words(message.get("content")) for message in request.messages)
        return Reply(answer, Usage(prompt_tokens=prompt_words, completion_tokens=_count_words(answer)))


def _table_function(table: ScriptTable) -> ScriptFunction:
    """A function that plays the table; queues are shared by all threads, and `deque.popleft` is atomic."""
    constants: dict[Role, str] = {}
    queues: dict[Role, deque[str | Reply | Exception]] = {}
    for role, replies in table.items():
        if isinstance(replies, str):
            constants[Role(role)] = replies
        elif isinstance(replies, Sequence) and all(isinstance(reply, str | Reply | Exception) for reply in replies):
            queues[Role(role)] = deque(replies)
        else:
            raise ConfigError(
                f"the script for role {str(role)!r} is {replies!r}; give a string, or a sequence of strings, Reply "
                "objects and exceptions"
            )

    def answer(role: Role, messages: Sequence[Message]) -> str | Reply:
        if role in constants:
            return constants[role]
        if role not in queues:
            raise BackendError(f"the script has no replies for role {str(role)!r}; add it to the table")
        try:
            reply = queues[role].popleft()
        except IndexError:
            raise BackendError(f"the script's replies for role {str(role)!r} are used up; add more") from None
        if isinstance(reply, Exception):
            raise reply
        return reply

    return answer


def _count_words(content: object) -> int:
    return len(content.split()) if isinstance(content, str) else 0

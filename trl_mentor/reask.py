"""The second and last question after a reply that could not be read. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trl_mentor.packing import shorten
from trl_mentor.quoting import neutralise
from trl_mentor.records import Message, Reply
from trl_mentor.replies import split_thinking

MAX_QUOTED_CHARS = 2_000
MAX_ERROR_CHARS = 300


def worth_asking_again(reply: Reply) -> bool:
    """False for a reply that was cut off inside its thinking: the model would think as long the second time."""
    visible, thinking = split_thinking(reply.text)
    return bool(visible) or not (reply.truncated or thinking)


def ask_again(
    messages: Sequence[Message],
    reply: Reply,
    error: str,
    schema: Mapping[str, Any] | None,
    *,
    wanted: str = "the hint alone, as plain text",
) -> list[Message]:
    """The same conversation, its last message extended by what was wrong with the reply.

    `wanted` is what to reply with where no schema says it.

    The reply may quote the student, so it stands in a block and not in a message of the assistant, whose words a model
    takes for its own.
    """
    visible, _ = split_thinking(reply.text)
    form = wanted
    if schema is not None:
        form = f"one JSON object and nothing before or after it, of this schema: {json.dumps(schema)}"
    complaint = (
        f"You have replied to this before, and the reply could not be used: {neutralise(_line(error))}\n"
        f"<reply>\n{neutralise(shorten(visible, MAX_QUOTED_CHARS)) or '[empty]'}\n</reply>\n"
        f"Reply again{', more briefly' if reply.truncated else ''}, with {form}"
    )
    *earlier, last = messages
    return [*earlier, {**last, "content": f"{last['content']}\n\n{complaint}"}]


def _line(error: str) -> str:
    return " ".join(error.split())[:MAX_ERROR_CHARS]

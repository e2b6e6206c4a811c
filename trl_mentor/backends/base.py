"""The seam to the mentor LLM: one method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from trl_mentor.records import Message, Reply, Role


@runtime_checkable
class Backend(Protocol):
    """A chat model that can be asked from several threads at once.

    `chat` blocks until it has the reply. It raises `BackendError` when the endpoint fails or `timeout` seconds pass;
    any other exception is treated the same by `Mentor` and recorded with its type.
    """

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        """Answer a conversation.

        `role` says which agent asks (for routing and for scripted replies); `timeout` is the number of seconds left
        for this call. `schema` is the JSON schema of the reply; a backend that cannot hold the model to one
        ignores it, because the prompt asks for the same.
        """
        ...

"""What a chat completion of the OpenAI API holds for the mentor."""

from __future__ import annotations

from trl_mentor.errors import BackendError
from trl_mentor.records import Reply, Usage


def read_reply(completion: object) -> Reply:
    """The first choice of a chat completion, or `BackendError` if there is none."""
    choices = getattr(completion, "choices", None)
    message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    if message is None:
        raise BackendError(
            "the endpoint's answer holds no chat completion; check that base_url is the root of its API"
        )
    content = getattr(message, "content", None)
    if content is not None and not isinstance(content, str):
        raise BackendError(f"the endpoint's reply has content of type {type(content).__name__}; expected text")
    truncated = getattr(choices[0], "finish_reason", None) == "length" if choices else False
    return Reply(content or "", _usage(getattr(completion, "usage", None)), truncated, thinking=_thinking(message))


def _thinking(message: object) -> str:
    """Servers that take thinking out of the content return it under one of two names."""
    found = [getattr(message, name, None) for name in ("reasoning_content", "reasoning")]
    return next((text for text in found if isinstance(text, str) and text), "")


def _usage(usage: object) -> Usage:
    prompt, completion = _field(usage, "prompt_tokens_details"), _field(usage, "completion_tokens_details")
    counts = (
        _field(usage, "prompt_tokens"),
        _field(usage, "completion_tokens"),
        _field(prompt, "cached_tokens"),
        _field(completion, "reasoning_tokens"),
    )
    return Usage(*(count if isinstance(count, int) else 0 for count in counts))


def _field(record: object, name: str) -> object:
    return record.get(name) if isinstance(record, dict) else getattr(record, name, None)

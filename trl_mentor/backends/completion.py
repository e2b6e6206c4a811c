"""What a chat completion of the OpenAI API holds for the mentor."""

from __future__ import annotations

from trl_mentor.errors import BackendError
from trl_mentor.records import Reply, Usage


def read_reply(completion: object) -> Reply:
    """The first choice of a chat completion, given as parsed JSON, or `BackendError` with the usage if it is none."""
    choice = _first_choice(completion)
    message = _field(choice, "message")
    if not isinstance(message, dict):
        raise _useless("holds no chat completion; check that base_url is the root of its API", completion)
    content = message.get("content")
    if content is not None and not isinstance(content, str):
        raise _useless(f"has content of type {type(content).__name__}; expected text", completion)
    truncated = _field(choice, "finish_reason") == "length"
    return Reply(content or "", _usage(_field(completion, "usage")), truncated, thinking=_thinking(message))


def read_plain_reply(completion: object) -> Reply:
    """The same of a completion that continues a text."""
    choice = _first_choice(completion)
    text = _field(choice, "text")
    if not isinstance(text, str):
        raise _useless("holds no completion; check that base_url is the root of its API", completion)
    return Reply(text, _usage(_field(completion, "usage")), _field(choice, "finish_reason") == "length")


def _useless(why: str, completion: object) -> BackendError:
    error = BackendError(f"the endpoint's answer {why}")
    error.usage = _usage(_field(completion, "usage"))  # it is billed like any other
    return error


def _first_choice(completion: object) -> object:
    choices = _field(completion, "choices")
    return choices[0] if isinstance(choices, list) and choices else None


def _thinking(message: object) -> str:
    """Servers that take thinking out of the content return it under one of two names."""
    found = [_field(message, name) for name in ("reasoning_content", "reasoning")]
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
    return record.get(name) if isinstance(record, dict) else None

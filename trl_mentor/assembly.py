"""From prompt and hint to the re-roll prompt, q' = h* + q (section 3.3 of the paper), and plain text back out."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from trl_mentor.errors import ConfigError
from trl_mentor.records import Completion, Message, Prompt

DEFAULT_HINT_TEMPLATE = "Hint: {hint}\n\nOriginal question: {question}"

_SENTENCE_END = re.compile(r"(?<=[^\d\s][.!?])\s+|(?<=[\u3002\uff01\uff1f])(?=.)|\n+")
_SLOTS = ("{hint}", "{question}")
_SYSTEM_ROLES = ("system", "developer")


def check_hint_template(template: str) -> None:
    """Raise `ConfigError` unless `{hint}` and `{question}` stand in the template exactly once each.

    All other braces are literal text. The order of the two slots is the placement of the hint.
    """
    for slot in _SLOTS:
        found = template.count(slot)
        if found != 1:
            raise ConfigError(
                f"the hint template {template!r} has {found} {slot} slots; expected exactly one {{hint}} and exactly "
                f"one {{question}}, for example {DEFAULT_HINT_TEMPLATE!r}"
            )


def add_hint(prompt: Prompt, hint: str, template: str = DEFAULT_HINT_TEMPLATE) -> Prompt:
    """A new prompt with the hint put in; `prompt` itself stays as it is.

    A plain prompt is wrapped whole, a conversation in its last user turn. Hint and question are inserted verbatim.
    Raises `ConfigError` for a conversation without a user turn or a template that `check_hint_template` refuses.
    """
    check_hint_template(template)
    before, _, after = template.partition("{question}")
    before, after = before.replace("{hint}", hint), after.replace("{hint}", hint)
    return _around(prompt, before, after)


def check_critique_template(template: str) -> None:
    """Raise `ConfigError` unless `{question}` and `{critique}` stand in the template once each, `{attempt}` at most.

    All other braces are literal text.
    """
    for slot, least in (("{question}", 1), ("{critique}", 1), ("{attempt}", 0)):
        found = template.count(slot)
        if not least <= found <= 1:
            raise ConfigError(
                f"the critique template {template!r} has {found} {slot} slots; expected {{question}} and {{critique}} "
                "exactly once each, and {attempt} once or not at all"
            )


def add_critique(prompt: Prompt, attempt: str, critique: str, template: str) -> Prompt:
    """A new prompt that asks to answer again; `prompt` itself stays as it is, and `add_hint` says where texts go.

    Question, attempt and critique are inserted verbatim. Raises `ConfigError` as `add_hint` does.
    """
    check_critique_template(template)
    texts = {"{attempt}": attempt, "{critique}": critique}
    before, _, after = (
        re.sub(r"\{attempt\}|\{critique\}", lambda slot: texts[slot[0]], part)
        for part in template.partition("{question}")
    )
    return _around(prompt, before, after)


def shorter_hint(hint: str) -> str | None:
    """The hint without its last sentence or line; None if there is but one."""
    ends = [match.start() for match in _SENTENCE_END.finditer(hint.strip())]
    return hint.strip()[: ends[-1]].rstrip() if ends else None


def question_text(prompt: Prompt) -> str:
    """What the mentor reads as the question: the prompt's text without system turns.

    A single user turn is given bare; in longer conversations each turn is labelled with its role.
    """
    if isinstance(prompt, str):
        return prompt
    turns = [message for message in prompt if message.get("role") not in _SYSTEM_ROLES]
    if len(turns) == 1 and turns[0].get("role") == "user":
        return _content_text(turns[0].get("content"))
    return "\n\n".join(f"{turn.get('role')}: {_content_text(turn.get('content'))}" for turn in turns)


def completion_text(completion: Completion) -> str:
    """The text of a completion in either shape; turns without text count as empty."""
    if isinstance(completion, str):
        return completion
    texts = (_content_text(message.get("content")) for message in completion)
    return "\n".join(text for text in texts if text)


def _around(prompt: Prompt, before: str, after: str) -> Prompt:
    if isinstance(prompt, str):
        return f"{before}{prompt}{after}"
    messages = deepcopy(prompt)
    turn = _last_user_turn(messages)
    turn["content"] = _wrap(turn.get("content"), before, after)
    return messages


def _last_user_turn(messages: list[Message]) -> Message:
    for message in reversed(messages):
        if message.get("role") == "user":
            return message
    roles = [message.get("role") for message in messages]
    raise ConfigError(
        f"a prompt has the roles {roles} and no user turn; a hint goes into the last user turn, so give every "
        "conversational prompt of the dataset at least one"
    )


def _wrap(content: Any, before: str, after: str) -> Any:
    if not isinstance(content, list):
        return f"{before}{content or ''}{after}"
    texts = [block for block in content if _is_text(block)]
    if not texts:
        return [{"type": "text", "text": before + after}, *content]
    texts[0]["text"] = before + texts[0]["text"]
    texts[-1]["text"] = texts[-1]["text"] + after
    return content


def _content_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(block["text"] for block in content if _is_text(block))
    return content or ""


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)

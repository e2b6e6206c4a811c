r"""What a model's reply says: its thinking taken off, and the JSON objects in the rest found. Standard library.

A reply is untrusted: it may quote the student, be cut off, contradict itself or be megabytes long. Every function here
takes time that is linear in the length of the text, and raises nothing but `ReplyError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trl_mentor.errors import DoubtfulReplyError, ReplyError
from trl_mentor.quoting import THINKING_NAMES, neutralise
from trl_mentor.records import Message

MAX_REPLY_CHARS = 20_000
"""Characters of a reply, without its thinking, above which it is not read."""

MAX_CHARS = 2_000_000
"""Characters of a reply, with its thinking, above which nothing of it is read."""

MAX_BRACES = 500
"""Opening braces outside the objects of a reply above which it is not read: each may have to be tried as an object."""

_THINKING_START = re.compile(
    rf"<{THINKING_NAMES}>|\[THINK\]|\u25c1{THINKING_NAMES}\u25b7|<\|begin_of_thought\|>", re.IGNORECASE
)
_THINKING_END = re.compile(
    rf"</{THINKING_NAMES}>|\[/THINK\]|\u25c1/{THINKING_NAMES}\u25b7|<\|end_of_thought\|>", re.IGNORECASE
)

_NO_ASCII_LETTER = {code: None for code in range(128) if not chr(code).isalnum()}

# LaTeX that the model forgot to escape: in \frac and \times stand no form feed and no tab.
_LATEX = re.compile(r'\\(?!["\\/]|u[0-9a-fA-F]{4}|n(?!eq|abla)|[bfrt](?![a-z]))')
_ESCAPE = re.compile(rf'\\["\\/]|{_LATEX.pattern}')


@dataclass(frozen=True, slots=True)
class Found:
    """The complete JSON objects of a reply, in their order, and the text around them."""

    objects: tuple[dict[str, Any], ...]
    around: str

    @property
    def alone(self) -> bool:
        """True if the reply is one object and nothing else, apart from a code fence around it."""
        return len(self.objects) == 1 and self.around.strip("` \t\r\n") in ("", "json", "JSON")


def split_thinking(text: str) -> tuple[str, str]:
    """The visible part of a reply, and the thinking before it.

    The thinking ends at the last closing tag, also where it was opened by the chat template and so not in the reply.
    A reply that ends inside its thinking has no visible part. One that is a JSON object as a whole has no thinking: a
    tag in it is quoted.
    """
    if _is_object(text):
        return text.strip(), ""
    end = 0
    for end_tag in _THINKING_END.finditer(text):
        end = end_tag.end()
    if _THINKING_START.search(text, end):
        return "", text
    return text[end:].strip(), text[:end]


def visible_text(text: str) -> str:
    """What follows the thinking. Raises `ReplyError` if it is empty, too long, or never begins."""
    if len(text) > MAX_CHARS:
        raise ReplyError(f"the reply has {len(text)} characters, more than {MAX_CHARS} with its thinking")
    visible, thinking = split_thinking(text)
    if not visible and thinking:
        raise ReplyError("the reply holds nothing but thinking; raise the mentor's token limit or turn thinking off")
    if not visible:
        raise ReplyError("the reply is empty")
    if len(visible) > MAX_REPLY_CHARS:
        raise ReplyError(f"the reply has {len(visible)} characters, more than {MAX_REPLY_CHARS}")
    return visible


def stray_thinking(text: str) -> str:
    """The part before the visible one that may be no thinking: a tag that closes it may be quoted.

    A reply that begins with thinking has such a part between its first and its last closing tag; one whose thinking
    was never opened, from its beginning.
    """
    _, thinking = split_thinking(text)
    start = 0
    if _THINKING_START.match(thinking.lstrip()) and (closing := _THINKING_END.search(thinking)):
        start = closing.end()
    return thinking[start:]


def find_objects(visible: str) -> Found:
    """The complete JSON objects of a reply's visible part: the whole of it, in a code fence, or in a sentence.

    Raises `ReplyError` if there is none, and `DoubtfulReplyError` where an object names a key twice.
    """
    text = _escaped(visible)
    objects: list[dict[str, Any]] = []
    around: list[str] = []
    position = start = failures = 0
    while (brace := text.find("{", position)) >= 0:
        try:
            found, position = _DECODER.raw_decode(text, brace)
        except (ValueError, RecursionError):
            failures, position = failures + 1, brace + 1
            if failures > MAX_BRACES:
                raise ReplyError("the reply has too many braces that are no JSON object") from None
            continue
        objects.append(found)
        around.append(text[start:brace])
        start = position
    if not objects:
        raise ReplyError("the reply holds no complete JSON object")
    return Found(tuple(objects), "".join([*around, text[start:]]))


def is_quoted(visible: str, messages: Sequence[Message]) -> bool:
    """True if the reply stands in the prompt, apart from marks and spaces: then it repeats what it was told."""
    prompt = _letters("".join(message["content"] for message in messages))
    return any(_letters(reply) in prompt for reply in (visible, neutralise(visible)))


def _letters(text: str) -> str:
    if text.isascii():  # as nearly every prompt is, and then twenty times as fast
        return text.translate(_NO_ASCII_LETTER).lower()
    return re.sub(r"[\W_]+", "", text).casefold()


def _is_object(text: str) -> bool:
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        body = body[3:-3].removeprefix("json").strip()
    if len(body) > MAX_REPLY_CHARS or body[:1] != "{" or body[-1:] != "}":
        return False
    try:
        json.loads(_escaped(body), strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _escaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: match[0] if len(match[0]) == 2 else "\\\\", text)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DoubtfulReplyError("an object in the reply names a key twice")
    return found


def _refuse_constant(name: str) -> None:
    raise ReplyError(f"the reply holds {name}, which is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant, strict=False)

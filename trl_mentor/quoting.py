"""Quoting of untrusted text inside prompts, and its inverse. Standard library only.

In a prompt, a text stands between a line `<name>` and a line `</name>`. Whatever in the text looks like such a tag is
escaped, so the text can neither close its block nor open another one. So are control tokens of chat formats, which an
endpoint may take for the end of the message.
"""

from __future__ import annotations

import re

BLOCK_NAMES = ("question", "answer", "attempts", "attempt", "diagnosis", "draft", "critique", "reply")

_ENTITIES = {"<": "lt", **{bracket: f"#{ord(bracket)}" for bracket in "\uff1c\ufe64\u2039\u2329\u3008\u27e8\u276e"}}
_BRACKETS = {entity: bracket for bracket, entity in _ENTITIES.items()}
_ANY_ENTITY = "|".join(_BRACKETS)

_INVISIBLE = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff"
_NAMES = "|".join(f"[{_INVISIBLE}]*".join(name) for name in BLOCK_NAMES)
_CONTROL_TOKENS = "[|\uff5c]|(?:start|end)_of_turn|(?:s|bos|eos)>"
_REST_OF_TAG = rf"(?=[\s/{_INVISIBLE}]*(?:(?:{_NAMES})\b|{_CONTROL_TOKENS}))"

# An entity that already stands in the text gets one more `amp;`, which keeps the quoting invertible.
_LOOKALIKE = re.compile(rf"([{''.join(_ENTITIES)}]|&(?:amp;)*(?:{_ANY_ENTITY});){_REST_OF_TAG}", re.IGNORECASE)
_ESCAPED = re.compile(rf"&((?:amp;)*)({_ANY_ENTITY});{_REST_OF_TAG}", re.IGNORECASE)

_UNENCODABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """The text with NULs and lone surrogates, which tokenizers and JSON refuse, replaced by U+FFFD."""
    return _UNENCODABLE.sub("\ufffd", text)


def neutralise(text: str) -> str:
    """The text with everything that looks like the tag of a block, or like a control token, made harmless."""

    def escape(match: re.Match[str]) -> str:
        found = match[1]
        return f"&amp;{found[1:]}" if found.startswith("&") else f"&{_ENTITIES[found]};"

    return _LOOKALIKE.sub(escape, clean_text(text))


def read_blocks(text: str, name: str) -> list[str]:
    """The original texts of the blocks called `name` in a rendered prompt, in order: the inverse of the quoting.

    Only NULs and lone surrogates do not come back.
    """

    def restore(match: re.Match[str]) -> str:
        return f"&{match[0].split(';', 1)[1]}" if match[1] else _BRACKETS[match[2].lower()]

    tag = re.escape(name)
    found = re.findall(rf'^<{tag}(?: number="\d+")?>\n(.*?)\n</{tag}>$', text, re.DOTALL | re.MULTILINE)
    return [_ESCAPED.sub(restore, block) for block in found]

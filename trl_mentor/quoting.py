"""Quoting of untrusted text inside prompts, and its inverse. Standard library only.

In a prompt, a text stands between a line `<name>` and a line `</name>`. What in the text looks like such a tag, to a
program or to a reader, and every closing tag whatever its name, is escaped, so the text can neither close its block
nor open another one. So are control tokens of chat formats, which an endpoint may take for the end of the message.
"""

from __future__ import annotations

import re
import unicodedata

BLOCK_NAMES = (
    "question",
    "answer",
    "attempts",
    "attempt",
    "feedback",
    "diagnosis",
    "earlier_hint",
    "draft",
    "critique",
    "reply",
)

_ANGLES = (
    "\uff1c\ufe64\u2039\u2329\u3008\u27e8\u276e\u276c\u2770\u27ea\u300a\u00ab\u02c2\u1438\u22d6\u227a\u29fc\u2991"
    "\u25c1"
)
_ENTITIES = {"<": "lt", **{bracket: f"#{ord(bracket)}" for bracket in f"[{_ANGLES}"}}
_BRACKETS = {entity: bracket for bracket, entity in _ENTITIES.items()}
_ANY_ENTITY = "|".join(_BRACKETS)

INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff"
)
"""Characters that show nothing, for a character class."""

_SLASHES = "/\u2044\u2215\uff0f\u29f8\u29f5\uff3c\u2571\u338f"
_ALIKE = {
    "a": "\u0430\u03b1",
    "c": "\u0441\u03f2",
    "d": "\u0501",
    "e": "\u0435\u0454\u03b5",
    "f": "\u0192",
    "i": "\u0456\u03b9\u0131\u04cf",
    "k": "\u043a\u03ba",
    "l": "\u04cf\u0131",
    "m": "\u043c",
    "n": "\u0578\u03b7",
    "o": "\u043e\u03bf\u0585",
    "p": "\u0440\u03c1",
    "q": "\u051b\u0566",
    "r": "\u0433",
    "s": "\u0455",
    "t": "\u0442\u03c4",
    "u": "\u03c5\u057d",
    "w": "\u051d\u03c9",
    "y": "\u0443\u04af\u03b3",
}
"""Letters of other alphabets that look like one of ours."""
_STYLED = [chr(code) for block in ((0x24B6, 0x24EA), (0xFF21, 0xFF5B), (0x1D400, 0x1D800)) for code in range(*block)]
_PLAIN = [(char, unicodedata.normalize("NFKC", char).lower()) for char in _STYLED]


def _letter(letter: str) -> str:
    """A class of all characters that look like the letter."""
    return f"[{letter}{_ALIKE.get(letter, '')}{''.join(styled for styled, plain in _PLAIN if plain == letter)}]"


_NAMES = "|".join(f"[{INVISIBLE}]*".join(map(_letter, name)) for name in BLOCK_NAMES)
THINKING_NAMES = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning|reflection|scratchpad|inner_monologue)"
"""What models call the tags around their thinking."""

NAMED_TOKENS = (
    r"/?(?:(?:start|end)_of_\w|(?:s|bos|eos|pad|unk|mask|sop|eop|eod)>|SYS>"
    r"|tool_(?:call|response)|function[=>_]|(?:extra_id|reserved|unused|SPECIAL)_?\d)"
)
"""Control tokens of chat formats after their `<`; those between `[` and `]` after their `[`."""
NAMED_SQUARE_TOKENS = (
    r"/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|CALL_ID|THINK|MODEL_SETTINGS"
    r"|[gs]MASK)\]|\|(?:system|user|assistant|tool|endofturn)\|\]"
)
_ANGLE_TOKENS = rf"[|\uff5c]|/?{THINKING_NAMES}|{NAMED_TOKENS}"
_REST_OF_TAG = rf"(?=[\s{INVISIBLE}]*(?:[{_SLASHES}]|(?:{_NAMES})(?!\w))|{_ANGLE_TOKENS})"
_REST_OF_SQUARE = rf"(?={NAMED_SQUARE_TOKENS})"

# An entity that already stands in the text gets one more `amp;`, which keeps the quoting invertible.
# The first character comes alone and first, because a search for one of a few characters is ten times as fast.
_LOOKALIKE = re.compile(
    rf"[<{_ANGLES}&\[](?:(?<=[<{_ANGLES}]){_REST_OF_TAG}|(?<=\[){_REST_OF_SQUARE}"
    rf"|(?<=&)(?:amp;)*(?:(?:{_ANY_ENTITY});{_REST_OF_TAG}|#91;{_REST_OF_SQUARE}))",
    re.IGNORECASE,
)
_ESCAPED = re.compile(
    rf"&((?:amp;)*)({_ANY_ENTITY});{_REST_OF_TAG}|&((?:amp;)*)(#91);{_REST_OF_SQUARE}", re.IGNORECASE
)

_UNENCODABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """The text with NULs and lone surrogates, which tokenizers and JSON refuse, replaced by U+FFFD."""
    return _UNENCODABLE.sub("\ufffd", text)


def neutralise(text: str) -> str:
    """The text with everything that looks like the tag of a block, or like a control token, made harmless."""
    if text.isascii() and not any(char in text for char in "<&[\0"):
        return text  # as nearly every text is: each tag, token and entity begins with one of these
    return _escaped_throughout(text)


def _escaped_throughout(text: str) -> str:
    def escape(match: re.Match[str]) -> str:
        found = match[0]
        return f"&amp;{found[1:]}" if found.startswith("&") else f"&{_ENTITIES[found]};"

    return _LOOKALIKE.sub(escape, clean_text(text))


def read_blocks(text: str, name: str) -> list[str]:
    """The original texts of the blocks called `name` in a rendered prompt, in order: the inverse of the quoting.

    Only NULs and lone surrogates do not come back.
    """

    def restore(match: re.Match[str]) -> str:
        found = match[0]
        return f"&{found.split(';', 1)[1]}" if found[1:4].lower() == "amp" else _BRACKETS[found[1:-1].lower()]

    tag = re.escape(name)
    found = re.findall(rf'^<{tag}(?: number="\d+")?>\n(.*?)\n</{tag}>$', text, re.DOTALL | re.MULTILINE)
    return [_ESCAPED.sub(restore, block) for block in found]

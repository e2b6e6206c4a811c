"""The four agents of section 3.2: a role, the form of its reply, and what to read from it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from trl_mentor.errors import ConfigError, DoubtfulReplyError, ReplyError
from trl_mentor.quoting import INVISIBLE, clean_text
from trl_mentor.records import Quality, Reply, Role, Verdict, VerdictSource
from trl_mentor.replies import Found, find_objects, stray_thinking, visible_text

T = TypeVar("T")
Form = TypeVar("Form", bound=BaseModel)

MAX_KEYWORDS = 8
MAX_KEYWORD_CHARS = 200
MAX_CRITIQUE_CHARS = 2_000

_HINT_LABEL = re.compile(r"[\s*_#>]*(?:(?:new|revised|improved|final) )?hint[*_]*\s*(?::[\s*_]*|\n)", re.IGNORECASE)
_FENCE = re.compile(r"```\w*\n(.*)\n```", re.DOTALL)
_WRAPPERS = (
    ("**", "**"),
    ('"', '"'),
    ("'", "'"),
    ("\u201c", "\u201d"),
    ("<hint>", "</hint>"),
    ("<draft>", "</draft>"),
)

_VERDICT_WORD = re.compile("verdict", re.IGNORECASE)
_VERDICT_FIELD = re.compile(r"verdict[\\\"'*_`]*[ \t]*[:=\uff1a]", re.IGNORECASE)
_LOW_WORD = re.compile(
    r"(?<!\w)[L\u13de\ua4e1][\W_]{0,2}[O0\u041e\u039f\u0555\ua4f3][\W_]{0,2}[W\u051c\u13b3\ua4ea](?!\w)"
)
_HIGH_WORD = re.compile(r"\bHIGH\b")
_SAYS_NO = re.compile(
    r"\W{0,8}(?:low|refuse[ds]?|refusing|reject(?:ed|s|ing)?|unacceptable|not acceptable)\b"
    r"|.{0,400}?\b(?:rat|grad|judg)(?:e|es|ed|ing)\W{1,3}(?:\w{1,20}\W{1,3}){0,4}?low\b",
    re.IGNORECASE | re.DOTALL,
)
_COMBINING = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
_INVISIBLE = re.compile(f"[{INVISIBLE}]")


def _upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


class Misconceptions(BaseModel):
    """The reply of the attribution agent. More fields than asked for do no harm."""

    model_config = ConfigDict(strict=True, extra="ignore")
    misconceptions: list[str]


class Judgment(BaseModel):
    """The reply of the judge: the critique comes first, so that the model gives its reasons before its grade.

    A second field might be a second verdict, so there is none.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    critique: str
    verdict: Annotated[Literal["HIGH", "LOW"], BeforeValidator(_upper)]


class RepairedHint(BaseModel):
    """The reply of the repair agent. More fields than asked for do no harm."""

    model_config = ConfigDict(strict=True, extra="ignore")
    hint: str


def plain_schema(form: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a flat form as servers of every kind take it: inline, every field required, no other one."""
    fields = {
        name: {key: value for key, value in field.items() if key != "title"}
        for name, field in form.model_json_schema()["properties"].items()
    }
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Agent(Generic[T]):
    """A role as a value: its name, which is also its template's, and the form and the parser of its replies."""

    role: Role
    parse: Callable[[str], T]
    accepts_truncated: bool = False
    """Whether a reply that was cut off at the token limit may be used at all."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the reply; None for free text."""

    def read(self, reply: Reply) -> T:
        """What the reply says. Raises `ReplyError` if it cannot be read or must not be trusted."""
        if reply.truncated and not self.accepts_truncated:
            raise ReplyError(f"the {self.role} reply was cut off at the token limit; raise the mentor's token limit")
        return self.parse(reply.text)


def parse_diagnosis(text: str) -> tuple[str, ...]:
    """The misconceptions, most important first: at most `MAX_KEYWORDS`, each at most `MAX_KEYWORD_CHARS` characters.

    Raises `ReplyError` if there are none.
    """
    form = last_form(find_objects(visible(text)), Misconceptions)
    keywords: dict[str, str] = {}
    for item in form.misconceptions:
        keyword = " ".join(clean_text(item).strip(" \t*_`\"'").split())[:MAX_KEYWORD_CHARS]
        if re.search(r"\w", keyword):
            keywords.setdefault(keyword.casefold(), keyword)
    if not keywords:
        raise ReplyError("the diagnosis holds no keyword")
    return tuple(keywords.values())[:MAX_KEYWORDS]


def parse_hint(text: str) -> str:
    """A hint in free text without label, fence or quotation marks around it. Raises `ReplyError` if it is empty."""
    return _bare_hint(visible(text))


def parse_repair(text: str) -> str:
    """The rewritten hint. Raises `ReplyError` if there is none."""
    return _bare_hint(clean_text(last_form(find_objects(visible(text)), RepairedHint).hint))


def parse_verdict(text: str) -> Verdict:
    """The verdict of a judge that says one thing.

    Raises `ReplyError` if there is none, or another word. What is in doubt is no approval: HIGH stands in an object
    that is the whole reply, apart from a code fence, and nothing else in the reply, decoded or not, speaks of a
    verdict, says LOW or begins its critique with a refusal. Otherwise it may be quoted, which is a
    `DoubtfulReplyError`, as are verdicts that differ. Thinking that was never begun may weigh LOW against HIGH, and
    must not speak of LOW alone.
    """
    shown = visible(text)
    try:
        found = find_objects(shown)
        form = last_form(found, Judgment)
    except ReplyError:
        _refuse_doubtful(shown, "the reply cannot be read and speaks of several verdicts")
        raise
    if any(_upper(each.get("verdict")) != form.verdict for each in found.objects):
        raise DoubtfulReplyError("the reply holds objects whose verdicts differ")
    if form.verdict == Quality.HIGH:
        said = _plain_letters(f"{json.dumps(found.objects, ensure_ascii=False)} {found.around}")
        if (
            _LOW_WORD.search(said)
            or _SAYS_NO.match(_plain_letters(form.critique))
            or len(_VERDICT_WORD.findall(said)) > 1
        ):
            raise DoubtfulReplyError("the reply says HIGH and speaks of another verdict or says LOW too")
        stray = _plain_letters(stray_thinking(text))
        if _VERDICT_FIELD.search(stray) or (_LOW_WORD.search(stray) and not _HIGH_WORD.search(stray)):
            raise DoubtfulReplyError("there is a verdict before the end of a thinking block that was never begun")
        if not found.alone:
            raise ReplyError("the reply says HIGH among other text; reply with the JSON object and nothing else")
    return Verdict(Quality(form.verdict), clean_text(form.critique).strip()[:MAX_CRITIQUE_CHARS], VerdictSource.JUDGE)


def _refuse_doubtful(text: str, complaint: str) -> None:
    if len(_VERDICT_FIELD.findall(_plain_letters(text))) > 1:
        raise DoubtfulReplyError(complaint)


def last_form(found: Found, form: type[Form]) -> Form:
    """The last object of a reply as a form. Raises `ReplyError`, which quotes nothing of the reply."""
    try:
        return form.model_validate(found.objects[-1])
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False, include_context=False)[0]
        known = [str(part) for part in wrong["loc"] if isinstance(part, int) or part in form.model_fields]
        place = ".".join(known) or "a field that was not asked for"
        raise ReplyError(f"the JSON object does not fit: {place}: {wrong['msg']}") from None


def _plain_letters(text: str) -> str:
    """The text without disguises: invisible and combining characters gone, wide and styled letters made plain."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", _COMBINING.sub("", text)))


def visible(text: str) -> str:
    """What follows the thinking, without characters that JSON refuses. Raises `ReplyError` as `visible_text` does."""
    return clean_text(visible_text(text))


def _bare_hint(text: str) -> str:
    hint, before = text, ""
    while hint != before:
        before = hint
        hint = _without(_HINT_LABEL, _unwrapped(hint)).strip()
    if not re.search(r"\w", hint):
        raise ReplyError("the hint is empty")
    return hint


def _without(start: re.Pattern[str], text: str) -> str:
    return text[match.end() :] if (match := start.match(text)) else text


def _unwrapped(text: str) -> str:
    text = text.strip()
    if fenced := _FENCE.fullmatch(text):
        return fenced[1]
    for start, end in _WRAPPERS:
        inner = text[len(start) : -len(end)]
        if text.startswith(start) and text.endswith(end) and start not in inner and end not in inner:
            return inner
    return text


ATTRIBUTION = Agent(Role.ATTRIBUTION, parse_diagnosis, schema=plain_schema(Misconceptions))
GENERATION = Agent(Role.GENERATION, parse_hint, accepts_truncated=True)
JUDGMENT = Agent(Role.JUDGMENT, parse_verdict, schema=plain_schema(Judgment))
REPAIR = Agent(Role.REPAIR, parse_repair, accepts_truncated=True, schema=plain_schema(RepairedHint))


@dataclass(frozen=True, slots=True)
class Agents:
    """The four agents of a mentor, by what each is for; give one to replace the package's own.

    Raises `ConfigError` for an agent in the place of another role.
    """

    attribution: Agent[tuple[str, ...]] = ATTRIBUTION
    generation: Agent[str] = GENERATION
    judgment: Agent[Verdict] = JUDGMENT
    repair: Agent[str] = REPAIR

    def __post_init__(self) -> None:
        for role in Role:
            agent = getattr(self, role)
            if not isinstance(agent, Agent) or agent.role is not role:
                found = f"an agent for {agent.role}" if isinstance(agent, Agent) else repr(agent)
                raise ConfigError(f"{role} is {found}; give an Agent(Role.{role.name}, parse)")

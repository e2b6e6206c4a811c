"""The policy cannot talk its judge into HIGH, even one that believes whatever stands outside the blocks."""

from __future__ import annotations

import functools
import re
import unicodedata

import pytest
import said
from judge_attacks import ATTACKS

from trl_mentor import templating
from trl_mentor.agents import JUDGMENT, parse_verdict
from trl_mentor.backends.scripted import ScriptedBackend
from trl_mentor.errors import ReplyError
from trl_mentor.mentor import Mentor
from trl_mentor.packing import pack_attempts
from trl_mentor.quoting import BLOCK_NAMES, clean_text
from trl_mentor.reask import ask_again
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin, Quality, Reply, Role, VerdictSource
from trl_mentor.templating import PromptTemplates, read_blocks

DOMAINS = ("math", "code", "general")
TEMPLATES = {domain: PromptTemplates(domain) for domain in DOMAINS}
LOW = said.verdict("LOW", "too vague")
FOOLED = said.verdict("HIGH", "As I was told.")
KNOWN_ERROR = re.compile(
    r"the reply (?:is empty|holds no complete JSON object|has too many braces that are no JSON object"
    r"|says HIGH among other text; reply with the JSON object and nothing else)"
    r"|the JSON object does not fit: (?:critique|verdict|a field that was not asked for): "
    r"(?:Field required|Extra inputs are not permitted|Input should be 'HIGH' or 'LOW')"
)
HINT = "Which whole numbers have exactly two divisors?"
HARMLESS = "a harmless text"

BLOCK = re.compile(
    rf'^<(?P<name>{"|".join(BLOCK_NAMES)})(?: number="\d+")?>\n.*?\n</(?P=name)>$', re.DOTALL | re.MULTILINE
)
CONTROL_TOKEN = re.compile(
    r"<[|\uff5c][^<>\n]{1,40}[|\uff5c]>|<(?:start|end)_of_turn>|</?(?:s|bos|eos|sop)>|<</?SYS>>|\[\|\w+\|\]|\[gMASK\]"
    r"|\[/?(?:INST|SYSTEM_PROMPT|TOOL_RESULTS)\]|</?think(?:ing)?>|</?tool_\w+>"
)
LOOKS_LIKE = str.maketrans(
    "\u0430\u0435\uff1c\ufe64\u2039\u300a\u00ab\u2215\u2044\uff0f\uff1e\ufe65\u203a\u300b\u00bb", "ae<<<<<///>>>>>"
)
TAG = re.compile(rf"<[\s/]*(?:{'|'.join(BLOCK_NAMES)})\b|<\s*/", re.IGNORECASE)


def outside_blocks(messages) -> str:
    """What a judge that follows the contract of the blocks takes for instructions.

    A control token ends the message wherever it stands, as it does at an endpoint that parses it.
    """
    parts = []
    for message in messages:
        first, *rest = CONTROL_TOKEN.split(message["content"])
        parts += [message["role"], BLOCK.sub(r"[\g<name>]", first), *rest]
    return "\n".join(parts)


def tags_that_a_reader_sees(messages) -> int:
    """Tags of blocks, and closing tags of any name, also those in disguise."""
    text = "\n".join(message["content"] for message in messages)
    visible = "".join(char for char in text if unicodedata.category(char) != "Cf")
    return len(TAG.findall(unicodedata.normalize("NFKC", visible.translate(LOOKS_LIKE))))


def slots(text: str):
    return {
        "question": text,
        "answer": "a reference answer",
        "attempts": tuple(pack_attempts([Attempt(text), Attempt("other")], 8_000)),
        "feedback": (text[:500] or "x", "x"),
        "diagnosis": (text[:200], "b"),
        "earlier_hints": (text, "b"),
        "draft": text,
        "critique": text[:2_000],
    }


def quiet(text: str) -> str:
    return LOW


def quotes_in_its_critique(text: str) -> str:
    return said.verdict("LOW", f"The student wrote: {text}")


def quotes_and_forgets_the_form(text: str) -> str:
    return f"I refuse, because the student wrote this:\n{text}\nThat is not for me to obey."


@functools.cache
def harmless(domain: str, role: Role) -> tuple[str, int]:
    messages = TEMPLATES[domain].messages(role, slots(HARMLESS))
    return outside_blocks(messages), tags_that_a_reader_sees(messages)


class GullibleJudge:
    """Replies of all four agents. The judge obeys whatever it finds outside the blocks and does not know.

    Otherwise it refuses, in the words of `manner`. It knows what stands outside the blocks in harmless prompts.
    """

    def __init__(self, domain: str, manner=quiet) -> None:
        asked = TEMPLATES[domain].messages(Role.JUDGMENT, slots(HARMLESS) | {"answer": None})
        asked_again = ask_again(asked, Reply("x"), "ERROR", JUDGMENT.schema)
        self.known = {outside_blocks(asked), outside_blocks(asked_again)}
        self.manner = manner
        self.judged = 0

    def __call__(self, role, messages):
        if role is Role.ATTRIBUTION:
            return said.diagnosis("counts 1 as prime")
        if role is Role.REPAIR:
            return said.repaired("Think about whether 1 has two different divisors.")
        if role is Role.GENERATION:
            return HINT
        self.judged += 1
        if KNOWN_ERROR.sub("ERROR", outside_blocks(messages), count=1) not in self.known:
            return FOOLED
        return self.manner(read_blocks(messages[-1]["content"], "question")[0])


def guided(domain, text, *, manner=quiet, templates_dir=None):
    judge = GullibleJudge(domain, manner)
    mentor = Mentor(ScriptedBackend(judge), domain=domain, templates_dir=templates_dir, max_retry=1, max_refine=1)
    group = CollapsedGroup(text[:3_000], (Attempt(text, feedback=text), Attempt("other")))
    (guidance,) = mentor.guide([group])
    return guidance, judge


def read_as(reply) -> Quality:
    try:
        return parse_verdict(reply).quality
    except ReplyError:
        return Quality.LOW


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_no_attack_leaves_its_block_in_the_prompt_of_any_role(domain, attack):
    text = ATTACKS[attack]
    for role in Role:
        messages = TEMPLATES[domain].messages(role, slots(text))
        assert (outside_blocks(messages), tags_that_a_reader_sees(messages)) == harmless(domain, role)
        asked = messages[-1]["content"]
        packed = pack_attempts([Attempt(text), Attempt("other")], 8_000)
        assert read_blocks(asked, "attempt") == list(map(clean_text, packed))
        if role in (Role.JUDGMENT, Role.REPAIR) and len(text) < 20_000:
            assert read_blocks(asked, "draft") == [clean_text(text)]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_makes_a_judge_that_follows_the_contract_say_high(attack):
    for manner in (quiet, quotes_in_its_critique, quotes_and_forgets_the_form):
        guidance, judge = guided("math", ATTACKS[attack], manner=manner)
        assert judge.judged >= 1
        assert guidance.origin is HintOrigin.FALLBACK
        assert {draft.verdict.quality for draft in guidance.drafts} == {Quality.LOW}
        assert {draft.verdict.source for draft in guidance.drafts} <= {VerdictSource.JUDGE, VerdictSource.UNREADABLE}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_judge_that_repeats_the_attack_word_for_word_has_not_judged(attack):
    for manner in (str, lambda text: f"I say LOW. {text}", lambda text: f"Hm.</think>{text}"):
        guidance, _ = guided("code", ATTACKS[attack], manner=manner)
        assert guidance.origin is HintOrigin.FALLBACK


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_refusal_that_quotes_the_attack_is_never_read_as_high(attack):
    text = ATTACKS[attack]
    for reply in (
        f"{text}\n{LOW}",
        f"{LOW}\n{text}",
        f"The student wrote:\n> {text}\n\n{LOW}",
        f"```\n{text}\n```\n```json\n{LOW}\n```",
        said.verdict("LOW", text),
        f'{{"critique": "{text}", "verdict": "LOW"}}',
        f'{{"critique": "The hint says {text}", "verdict": "LOW"',
        f"<think>{text}</think>{LOW}",
        f"<think>Hm.</think>{text}{LOW}",
        f"{text}</think>{LOW}",
        f"<think>Hm.</think>{LOW}{text}",
        f"{LOW}</think>{text}",
        f"{text} is what I was told to say; my verdict is LOW.",
    ):
        assert read_as(reply) is Quality.LOW


def test_the_judge_of_these_tests_is_fooled_by_a_template_that_shows_the_question_outside_a_block(tmp_path):
    (tmp_path / "math").mkdir()
    (tmp_path / "math/judgment.jinja").write_text(
        '{% extends "shared/judgment.jinja" %}{% block part %}{{ question }}{{ super() }}{% endblock %}'
    )
    guidance, _ = guided("math", ATTACKS["the developer"], templates_dir=tmp_path)
    assert guidance.origin is HintOrigin.ACCEPTED


def test_the_judge_of_these_tests_is_fooled_where_quoting_is_left_out(monkeypatch):
    monkeypatch.setattr(templating, "neutralise", clean_text)
    for attack in ("closes its attempt", "closes and opens with a number", "ChatML", "Llama 2", "DeepSeek"):
        assert guided("math", ATTACKS[attack])[0].origin is HintOrigin.ACCEPTED
    seen = {
        attack
        for attack in ATTACKS
        if tags_that_a_reader_sees(TEMPLATES["math"].messages(Role.JUDGMENT, slots(ATTACKS[attack])))
        != tags_that_a_reader_sees(TEMPLATES["math"].messages(Role.JUDGMENT, slots(HARMLESS)))
    }
    assert {attack for attack in ATTACKS if attack.startswith("closes")} - {"closes with entities"} <= seen


def test_there_are_enough_attacks_and_no_two_are_the_same():
    assert len(ATTACKS) >= 40
    assert len(set(ATTACKS.values())) == len(ATTACKS)

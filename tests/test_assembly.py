"""Putting the hint into the prompt, and reading text out of prompts and completions."""

from __future__ import annotations

from copy import deepcopy

import pytest

from trl_mentor.assembly import (
    DEFAULT_HINT_TEMPLATE,
    add_hint,
    check_hint_template,
    completion_text,
    question_text,
    shorter_hint,
)
from trl_mentor.errors import ConfigError

SYSTEM = {"role": "system", "content": "Think first."}
USER = {"role": "user", "content": "What is 6 * 7?"}
IMAGE = {"type": "image"}


def text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def test_a_plain_prompt_gets_the_hint_before_the_question():
    assert add_hint("What is 6 * 7?", "Add 6 seven times.") == (
        "Hint: Add 6 seven times.\n\nOriginal question: What is 6 * 7?"
    )


def test_in_a_conversation_the_user_turn_is_wrapped_and_the_system_turn_kept():
    assert add_hint([SYSTEM, USER], "Add.") == [
        SYSTEM,
        {"role": "user", "content": "Hint: Add.\n\nOriginal question: What is 6 * 7?"},
    ]


def test_only_the_last_user_turn_is_wrapped_and_every_other_turn_and_key_is_kept():
    prompt = [
        SYSTEM,
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi", "thinking": "..."},
        {"role": "user", "content": "What is 6 * 7?", "name": "ann"},
        {"role": "assistant", "content": "<think>"},
    ]
    hinted = add_hint(prompt, "Add.")
    assert hinted[:3] == prompt[:3]
    assert hinted[3] == {"role": "user", "content": "Hint: Add.\n\nOriginal question: What is 6 * 7?", "name": "ann"}
    assert hinted[4] == prompt[4]


def test_typed_blocks_are_wrapped_in_their_text():
    prompt = [{"role": "user", "content": [IMAGE, text_block("Count the dots.")]}]
    assert add_hint(prompt, "Look twice.", "{hint} | {question} !") == [
        {"role": "user", "content": [IMAGE, text_block("Look twice. | Count the dots. !")]}
    ]


def test_several_text_blocks_are_wrapped_as_one_text():
    prompt = [{"role": "user", "content": [text_block("Count"), IMAGE, text_block("the dots.")]}]
    [turn] = add_hint(prompt, "Look.", "<{hint}> {question} <end>")
    assert turn["content"] == [text_block("<Look.> Count"), IMAGE, text_block("the dots. <end>")]


@pytest.mark.parametrize("content", [None, "", [IMAGE]])
def test_a_user_turn_without_text_still_gets_the_hint(content: object):
    [turn] = add_hint([{"role": "user", "content": content}], "Look.")
    assert "Hint: Look." in question_text([turn])


@pytest.mark.parametrize(
    "prompt",
    [
        [SYSTEM, USER],
        [{"role": "user", "content": [text_block("Count"), IMAGE]}],
    ],
)
def test_the_prompt_of_the_dataset_is_left_as_it_was(prompt: list[dict[str, object]]):
    before = deepcopy(prompt)
    hinted = add_hint(prompt, "Look.")
    assert prompt == before
    hinted[0]["content"] = "changed"
    hinted[0]["extra"] = "changed"
    assert prompt == before


@pytest.mark.parametrize("nasty", ["{question}", "{hint}", "{{ answer }}", "{% raw %}", r"\boxed{x}", "{0} %s \\1"])
def test_hint_and_question_are_inserted_verbatim(nasty: str):
    expected = f"Hint: {nasty}\n\nOriginal question: {nasty}"
    assert add_hint(nasty, nasty) == expected
    assert add_hint([{"role": "user", "content": nasty}], nasty) == [{"role": "user", "content": expected}]


def test_the_order_of_the_slots_is_the_placement():
    assert add_hint("Q", "H", "{question}\n(Hint: {hint})") == "Q\n(Hint: H)"


def test_other_braces_of_the_template_are_literal():
    assert add_hint("Q", "H", "{question} {hint} {box} {} {{x}}") == "Q H {box} {} {{x}}"


@pytest.mark.parametrize(
    "template", ["", "{hint}", "{question}", "{hint}{hint}{question}", "{hint}{question}{question}"]
)
def test_a_template_without_exactly_one_slot_of_each_kind_is_refused(template: str):
    with pytest.raises(ConfigError, match="expected exactly one"):
        check_hint_template(template)
    with pytest.raises(ConfigError, match="expected exactly one"):
        add_hint("Q", "H", template)


def test_the_default_template_is_accepted():
    check_hint_template(DEFAULT_HINT_TEMPLATE)


def test_a_conversation_without_a_user_turn_is_refused_with_its_roles():
    with pytest.raises(ConfigError, match=r"roles \['system'\] and no user turn"):
        add_hint([SYSTEM], "Add.")


@pytest.mark.parametrize(
    ("hint", "shorter"),
    [
        ("Look at the units. Which one is odd?", "Look at the units."),
        ("First line\n\nSecond line\n", "First line"),
        ("Recall step 3. of the proof", None),  # a number with its dot ends no sentence
        ("One sentence alone.", None),
        ("第一步看单位。第二步检查符号。", "第一步看单位。"),
        ("", None),
    ],
)
def test_a_hint_gets_shorter_by_its_last_sentence(hint: str, shorter: str | None):
    assert shorter_hint(hint) == shorter


def test_the_question_of_a_plain_prompt_is_the_prompt():
    assert question_text("What is 6 * 7?") == "What is 6 * 7?"


@pytest.mark.parametrize("system", [[], [SYSTEM], [{"role": "developer", "content": "Be brief."}]])
def test_the_question_of_a_single_turn_conversation_is_the_user_text(system: list[dict[str, object]]):
    assert question_text([*system, USER]) == "What is 6 * 7?"
    assert question_text([*system, {"role": "user", "content": [IMAGE, text_block("Count.")]}]) == "Count."


def test_the_question_of_a_longer_conversation_names_the_speakers():
    prompt = [SYSTEM, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, USER]
    assert question_text(prompt) == "user: Hi\n\nassistant: Hello\n\nuser: What is 6 * 7?"


def test_a_lone_turn_that_is_not_the_users_is_labelled():
    assert question_text([{"role": "assistant", "content": "Hello"}]) == "assistant: Hello"


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("42", "42"),
        ([{"role": "assistant", "content": "42"}], "42"),
        ([{"role": "assistant", "content": [text_block("4"), text_block("2")]}], "4\n2"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], ""),
        ([{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}], "a\nb"),
        ([{"role": "assistant"}], ""),
        ([], ""),
        ("", ""),
    ],
)
def test_a_completion_in_either_shape_has_one_text(completion: object, text: str):
    assert completion_text(completion) == text

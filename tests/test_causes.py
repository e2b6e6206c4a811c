from __future__ import annotations

import math

import numpy as np
import pytest

from trl_mentor.causes import DEFAULT_ROUTES, Sign, check_routes, find_cause, format_columns, states_answer
from trl_mentor.collapse import SuccessRule
from trl_mentor.errors import ConfigError
from trl_mentor.group_reader import GroupReader, Member, reference_answer
from trl_mentor.records import Cause, Route, Row

NAN = math.nan
WRONG = ("so it is 4", "I think 5", "maybe 6")


def signs(texts=WRONG, success=0.0, **options):
    return [Sign(text, success, **options) for text in texts]


def test_a_group_of_different_whole_answers_lacks_knowledge():
    assert find_cause(signs(), "12") == find_cause(signs()) == find_cause(signs(), "12")
    assert find_cause(signs(), "12").cause is Cause.KNOWLEDGE


def test_completions_that_all_ran_into_the_length_limit_were_cut_off():
    found = find_cause(signs(truncated=True))
    assert (found.cause, found.detail) == (Cause.CUT_OFF, "all 3 completions ran into the length limit")


def test_one_completion_that_ended_by_itself_was_not_cut_off():
    assert find_cause([*signs(truncated=True), Sign("done", 0.0)]).cause is Cause.KNOWLEDGE


def test_completions_that_are_the_same_word_for_word_are_duplicates():
    assert find_cause(signs(["four", "four"])).cause is Cause.DUPLICATES
    assert "'four'" in find_cause(signs(["four", "four"])).detail


@pytest.mark.parametrize("texts", [["four"], ["four", "four "], ["four", "Four"]])
def test_one_completion_or_others_that_differ_in_a_sign_are_no_duplicates(texts):
    assert find_cause(signs(texts)).cause is Cause.KNOWLEDGE


def test_empty_completions_are_duplicates_of_each_other():
    found = find_cause(signs(["", "", ""]))
    assert (found.cause, found.detail) == (Cause.DUPLICATES, "all 3 completions are the same: nothing")


def test_a_group_that_nobody_could_score_is_unscorable():
    assert find_cause(signs(success=NAN)).cause is Cause.UNSCORABLE
    assert "length limit" in find_cause(signs(success=NAN, truncated=True)).detail


def test_an_unscorable_group_with_a_reported_error_is_an_error_of_the_verifier():
    found = find_cause([*signs(success=NAN), Sign("x", NAN, verifier_error="OSError: no sandbox")])
    assert (found.cause, found.detail) == (Cause.VERIFIER_ERROR, "the verifier failed: OSError: no sandbox")


def test_a_reward_beside_a_reported_error_says_nothing():
    assert find_cause(signs(success=0.0, verifier_error="timeout")).cause is Cause.VERIFIER_ERROR


def test_completions_that_were_judged_decide_alone():
    unjudged = [Sign("x", NAN), Sign("y", 0.0, verifier_error="timeout")]
    assert find_cause([*unjudged, *signs()]).cause is Cause.KNOWLEDGE
    assert find_cause([*unjudged, *signs(truncated=True)]).cause is Cause.CUT_OFF
    assert find_cause([*unjudged, *signs(["four", "four"])]).cause is Cause.DUPLICATES


def test_the_earlier_cause_wins():
    all_at_once = {"truncated": True, "parsed": "[unparseable]", "formats": (0.0,)}
    same = ["four", "four"]
    assert find_cause(signs(same, NAN, verifier_error="e", **all_at_once)).cause is Cause.VERIFIER_ERROR
    assert find_cause(signs(same, NAN, **all_at_once)).cause is Cause.UNSCORABLE
    assert find_cause(signs(same, **all_at_once)).cause is Cause.CUT_OFF
    assert find_cause(signs(same, **all_at_once | {"truncated": False})).cause is Cause.DUPLICATES
    assert find_cause(signs(**all_at_once | {"truncated": False})).cause is Cause.FORMAT


@pytest.mark.parametrize("report", ["[unparseable]", "[incomplete reasoning]"])
def test_a_verifier_that_found_no_answer_anywhere_says_that_the_form_failed(report):
    found = find_cause(signs(parsed=report))
    assert found.cause is Cause.FORMAT
    assert found.detail.endswith("of which one ends: 'so it is 4'")


def test_an_answer_that_was_read_in_one_completion_is_judged_as_an_answer():
    read = Sign("so 4", 0.0, parsed="[4, '4']", formats=(0.0,))
    assert find_cause([*signs(parsed="[unparseable]", formats=(0.0,)), read], "12").cause is Cause.KNOWLEDGE


def test_no_completion_keeps_to_the_form_if_no_format_reward_pays_anywhere():
    assert find_cause(signs(formats=(0.0,))).cause is Cause.FORMAT
    assert find_cause(signs(formats=(-1.0, 0.0))).cause is Cause.FORMAT


@pytest.mark.parametrize("formats", [(0.1,), (0.0, 1.0), (NAN,), ()])
def test_a_format_reward_that_pays_or_is_missing_shows_no_fault_of_form(formats):
    assert find_cause([*signs(formats=(0.0,)), Sign("x", 0.0, formats=formats)]).cause is Cause.KNOWLEDGE


def test_the_reference_answer_that_got_no_reward_was_not_read():
    found = find_cause([*signs(), Sign("... The answer is 12.", 0.0)], "12")
    assert found.cause is Cause.FORMAT
    assert "The answer is 12." in found.detail


def test_the_reference_answer_that_was_read_or_got_a_part_of_the_reward_is_no_fault_of_form():
    read = Sign("The answer is 12.", 0.0, parsed="[13]")
    assert find_cause([*signs(), read], "12").cause is Cause.KNOWLEDGE
    assert find_cause([*signs(), Sign("The answer is 12.", 0.3)], "12").cause is Cause.KNOWLEDGE


@pytest.mark.parametrize("named", [("right", "short"), ()], ids=["all must succeed", "their sum must"])
@pytest.mark.parametrize(
    ("rewards", "cause"),
    [
        ((0.0, 0.0), Cause.FORMAT),
        ((0.0, -1.0), Cause.FORMAT),
        ((1.0, -1.0), Cause.KNOWLEDGE),
        ((NAN, 0.0), Cause.KNOWLEDGE),
    ],
)
def test_the_reference_answer_that_another_condition_failed_is_no_fault_of_form(named, rewards, cause):
    rule = SuccessRule.from_names(["right", "short"], weights=[1.0, 1.0], success_rewards=named)
    example = {"prompt": "6 + 6?", "answer": "12"}
    rows = [Row([1], [2], text, None, rewards) for text in ("I guess 4", "Answer: 12")]
    members = [Member(number, row, truncated=False, example=example) for number, row in enumerate(rows)]
    assert GroupReader(rule, answer_columns=["answer"]).read(0, members).cause is cause


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"answer": "4", "solution": "5"}, "4"),
        ({"answer": None, "solution": "5"}, "5"),
        ({"answer": "  ", "solution": 5}, "5"),
        ({"answer": float("nan"), "solution": 5.5}, "5.5"),
        ({"answer": [], "solution": ["1", ["2", None]]}, "1\n2"),
        ({"answer": np.array([3, 4])}, "3\n4"),
        ({"answer": np.float64("nan"), "solution": np.int64(7)}, "7"),
        ({"answer": 0}, "0"),
        ({"answer": "half \ud800"}, "half \ufffd"),
        ({"answer": {"a": 1}}, "1"),
        ({}, None),
    ],
    ids=str,
)
def test_the_reference_answer_is_the_first_that_is_not_empty_in_whatever_format(row, answer):
    assert reference_answer(row, ("answer", "solution")) == answer


@pytest.mark.parametrize(
    "text",
    [
        r"so \boxed{12}",
        "... and so\nThe answer is 12.",
        "**Answer:** 12",
        "6 + 6\n#### 12",
        "<answer> 12 </answer>",
        r"The final answer is: $\boxed{12}$.",
        "the answer is $12$",
        "Answer: 12.0",
    ],
)
def test_a_last_line_that_gives_the_answer_as_the_final_one(text):
    assert states_answer(text, "12")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12",
        "x = 12",
        "so x = 3 or x = 12",
        "The answer is not 12",
        "The answer is 3 or 12",
        "The answer is 12 or 13",
        "The answer is 12\nNo, wait",
        "The answer is 5? 12",
        "the answers are 12",
        r"\boxed{3} is wrong, 12",
        "The answer is 120",
    ],
)
def test_a_last_line_that_merely_holds_the_answer(text):
    assert not states_answer(text, "12")


def test_the_answer_is_found_in_another_form_and_by_letter():
    assert states_answer("Answer: 0.5", r"\frac{1}{2}")
    assert states_answer("Answer: (B)", "B")


def test_format_rewards_are_those_with_format_in_their_name_that_do_not_decide_success():
    assert format_columns(["soft_Format_reward", "accuracy"], None) == (0,)
    assert format_columns(["format", "accuracy_format"], None, ["accuracy_format"]) == (0,)
    assert format_columns(["accuracy", "length"], None) == ()


def test_a_format_reward_that_is_the_only_reward_is_success():
    assert format_columns(["format_reward"], None) == ()


def test_format_rewards_may_be_named_or_none():
    assert format_columns(["tidy", "format", "accuracy"], ["tidy"]) == (0,)
    assert format_columns(["format", "accuracy"], []) == ()


@pytest.mark.parametrize(
    ("names", "named", "success", "words"),
    [
        (["tidy", "right"], ["tydi"], [], "'tydi', which is not one of"),
        (["tidy", "tidy", "right"], ["tidy"], [], "not unique among"),
        (["tidy", "right"], ["right"], ["right"], "in mentor_format_rewards and in mentor_success_rewards"),
    ],
)
def test_a_wrong_name_of_a_format_reward_is_refused(names, named, success, words):
    with pytest.raises(ConfigError, match=words):
        format_columns(names, named, success)


def test_routes_can_be_overridden_cause_by_cause():
    assert check_routes(None) == DEFAULT_ROUTES
    routes = check_routes({"duplicates": "mentor", "knowledge": "skip"})
    assert (routes[Cause.DUPLICATES], routes[Cause.KNOWLEDGE]) == (Route.MENTOR, Route.SKIP)
    assert routes[Cause.FORMAT] is Route.FORMAT_HINT


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ({"cutoff": "mentor"}, "'cutoff'; expected one of cut_off, format, duplicates"),
        ({"format": "hint"}, "to 'hint'; expected one of mentor, format_hint, skip"),
        ({"format": ["skip"]}, "expected one of mentor, format_hint, skip"),
        ({"unscorable": "mentor"}, "can only be 'skip'"),
        ({"verifier_error": "format_hint"}, "can only be 'skip'"),
    ],
)
def test_a_wrong_route_is_refused(routes, words):
    with pytest.raises(ConfigError, match=words):
        check_routes(routes)

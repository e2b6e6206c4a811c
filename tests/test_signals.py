"""Completions of plain questions that quote a hint which nobody gave: what is one, and how many a run counts."""

from __future__ import annotations

import json

import letters
import pytest
import said
import tiny

from trl_mentor import Mentor, ScriptedBackend
from trl_mentor.records import Role
from trl_mentor.unhinted_echo import KEPT, UnhintedEchoes

HINT = "Write the number as a sum of two squares, then look at each term modulo four."
QUESTION = "How many odd primes below 50 are a sum of two squares?"
LONG = " ".join(f"w{i}" for i in range(30, 40))


def quotes(text: str, *, question: str = QUESTION, hints: tuple[tuple[str, str], ...] = ((HINT, QUESTION),)) -> bool:
    echoes = UnhintedEchoes()
    echoes.keep(hints)
    return echoes.count([text], [question]) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"{HINT} Squares leave 0 or 1.",
        "So WRITE the number, as a sum of two squares: 4 + 1.",  # nine words of the hint
        "Hint: think of the remainders.",
        "<think>\n**Hint:** think of the remainders.",
        "(The hint says to think of remainders.) 7",
        "According to the hint, 7 is out.",
        "Using the given hint we find 7.",
    ],
)
def test_a_quotation_or_its_introduction_is_an_echo(text):
    assert quotes(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Squares leave 0 or 1, so 7 is out.",
        "We look at each term modulo four. So 7 is out.",  # six words
        "A hint of salt, and 7 is out.",
        "7 is out, as the hint: says.",  # not at the beginning
        "Hints: none. 7.",
    ],
)
def test_other_completions_are_none(text):
    assert not quotes(text)


def test_what_a_question_says_itself_is_no_hint():
    asked = "Write the number as a sum of two squares, then stop."
    restated = f"{asked} Fine: 4 + 1."
    assert quotes(restated)
    assert not quotes(restated, question=asked)  # asked for another question, whose hint has these words
    assert not quotes(restated, hints=((HINT, asked),))  # the hint had them from its own question
    assert quotes("Hint: 4 + 1")
    assert not quotes("Hint: 4 + 1", question="Give a hint for 5.")


def test_only_the_newest_hints_are_looked_for_and_before_the_first_there_is_nothing_to_look_for():
    echoes = UnhintedEchoes()
    hints = [" ".join(f"h{number}x{word}" for word in range(8)) for number in range(KEPT + 1)]
    assert not echoes.begun
    echoes.keep((hint, "") for hint in hints[:KEPT])
    assert echoes.begun
    assert echoes.count(hints, [""] * len(hints)) == KEPT
    echoes.keep([(hints[0], ""), (hints[KEPT], "")])  # one that is there already, and a new one
    assert [echoes.count([hint], [""]) for hint in (hints[0], hints[1], hints[KEPT])] == [0, 1, 1]


def test_what_is_kept_survives_a_checkpoint():
    echoes, again = UnhintedEchoes(), UnhintedEchoes()
    echoes.keep([(HINT, QUESTION), ("Short.", "")])
    again.keep([("h " * 9, "")])
    again.restore(json.loads(json.dumps(echoes.state())))
    assert again.state() == echoes.state() == [[HINT, QUESTION], ["Short.", ""]]
    assert again.count([HINT, "h " * 9], ["", ""]) == 1


class QuotesAnyway(tiny.Recorder):
    """From the second step on three completions of plain questions quote a hint, one nearly, one announces some."""

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        completions, *rest = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        if "Hint" not in self.processing_class.decode(prompt_ids[0]) and self.state.global_step:
            texts = [LONG, f"w1 w2 {LONG}", " ".join(LONG.split()[2:]), " ".join(LONG.split()[3:]), "Hint : w1"]
            completions = [tiny.tokenizer()(text)["input_ids"] for text in texts] + completions[len(texts) :]
        return completions, *rest


def mentor_with(hint):
    replies = {Role.ATTRIBUTION: said.diagnosis("confuses w1 with w2"), Role.GENERATION: hint}
    return Mentor(ScriptedBackend(replies | {Role.JUDGMENT: said.verdict("HIGH"), Role.REPAIR: said.repaired(hint)}))


def logged(trainer):
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("conversational", [False, True])
@pytest.mark.parametrize("rescue", ["replace", "single"])
def test_a_run_counts_the_first_completions_that_quote_a_hint_that_nobody_gave(tmp_path, rescue, conversational):
    options = {"mentor": mentor_with(LONG), "mentor_rescue": rescue, "cls": QuotesAnyway, "max_steps": 3}
    trainer = tiny.trained(tmp_path, data=tiny.dataset(conversational=conversational), **options)
    first, second, third = logged(trainer)
    assert "mentor/unhinted_echo_rate" not in first  # no hint was given before
    assert second["mentor/unhinted_echo_rate"] == third["mentor/unhinted_echo_rate"] == 4 / 16
    assert third["mentor/total/unhinted_echo_rate"] == 8 / 32
    assert (trainer.mentor_totals.unhinted_echoes, trainer.mentor_totals.echo_checked) == (8, 32)


@pytest.mark.parametrize("strategy", ["none", "resample"])
def test_a_run_without_hints_looks_for_none(tmp_path, strategy):
    reward = tiny.HardRowsFail(rerolls=strategy == "resample")
    trainer = tiny.trained(tmp_path, cls=QuotesAnyway, mentor_strategy=strategy, reward=reward, max_steps=2)
    assert trainer.mentor_totals.echo_checked == 0
    assert not any("echo_rate" in name for entry in logged(trainer) for name in entry)


@pytest.mark.parametrize(("preset", "share"), [("paper", 0.75), ("robust", 0.5)])
def test_trl_says_which_groups_are_trained_without_an_advantage(tmp_path, preset, share):
    # Groups 0 and 2 are all correct. Of the re-rolled ones 1 succeeds in half, 3 in all of its rows.
    rolls = {"first": {"1": "c", "3": "c"}, "mentor/reroll": {"1": "m", "3": "a"}}
    (entry,) = logged(letters.trained(tmp_path, rolls, mentor_preset=preset))
    assert entry["frac_reward_zero_std"] == share
    if preset == "paper":
        names = ("frac_all_correct", "frac_collapsed", "frac_rescued")
        correct, collapsed, rescued = (entry[f"mentor/{name}"] for name in names)
        assert correct + collapsed - rescued == share


def test_the_gradient_norm_that_is_logged_is_the_one_before_clipping(tmp_path):
    found = [logged(tiny.trained(tmp_path / str(limit), max_grad_norm=limit))[0]["grad_norm"] for limit in (1e3, 1e-6)]
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    assert found[0] > 1e-3

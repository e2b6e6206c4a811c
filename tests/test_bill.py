"""The bill and the ledger it is made of: what adds up, what a person reads, what a file holds."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from trl_mentor.backends.completion import read_reply
from trl_mentor.bill import Bill
from trl_mentor.closing import closing_text
from trl_mentor.counters import Counters
from trl_mentor.errors import BackendError, EndpointPausedError
from trl_mentor.records import Reply, Role, Usage
from trl_mentor.spending import Ledger, Outlay, RoleSpending, Spending, outlay_of
from trl_mentor.tallies import Tallies, Tally

ROLES = {
    "generation": RoleSpending(4, 1, 1, 2, 1_000, 300, 60, 200, 9.0),
    "judgment": RoleSpending(2, 0, 0, 0, 500, 40, 0, 0, 3.0),
}
COUNTED = Counters(
    policy_tokens=100_000,
    reroll_tokens=30_000,
    control_tokens=9_000,
    padding_tokens=1_000,
    probe_tokens=5_000,
    seconds=200.0,
    mentor_seconds=20.0,
    reroll_seconds=50.0,
    mentor=Spending(ROLES, busy_seconds=30.0, cost=1.25),
)


def test_the_parts_of_the_policy_add_up_to_all_that_it_generated():
    bill = Bill.of(COUNTED, priced=True)
    assert (bill.first_roll_tokens, bill.reroll_tokens, bill.control_tokens) == (65_000, 20_000, 9_000)
    assert bill.policy_tokens == COUNTED.policy_tokens


def test_a_bill_without_prices_has_no_cost_and_one_with_them_may_be_for_nothing():
    assert Bill.of(COUNTED, priced=False).cost is None
    assert "mentor/bill/cost" not in Bill.of(COUNTED, priced=False).metrics()
    assert Bill.of(Counters(), priced=True).metrics()["mentor/bill/cost"] == 0.0


def test_seconds_are_hidden_where_the_mentor_worked_longer_than_training_waited_and_never_negative():
    assert Bill.of(COUNTED, priced=False).hidden_seconds == 10.0
    assert Bill.of(COUNTED + Counters(mentor_seconds=99.0), priced=False).hidden_seconds == 0.0


def test_shares_are_of_the_seconds_of_training_and_none_before_there_were_any():
    bill = Bill.of(COUNTED, priced=False)
    assert (bill.share(bill.waited_seconds), bill.share(bill.reroll_seconds)) == (0.1, 0.25)
    assert Bill().share(1.0) == 0.0


def test_the_fields_are_the_same_for_every_strategy_and_all_are_numbers():
    empty, full = Bill.of(Counters(), priced=False).metrics(), Bill.of(COUNTED, priced=False).metrics()
    assert empty.keys() == full.keys()
    assert all(math.isfinite(value) for value in full.values())
    assert full["mentor/bill/mentor_prompt_tokens"] == 1_500
    assert full["mentor/bill/judgment_completion_tokens"] == 40


def test_what_a_person_reads_leaves_out_parts_that_were_not_there():
    lines = dict(Bill.of(COUNTED, priced=True).rows())
    assert lines["policy tokens"] == "100,000"
    assert lines["  re-rolls with the hint withheld"] == "9,000"
    assert lines["  generation"] == "1,000 in, 300 out"
    assert lines["  waited for the mentor"] == "20.0 (10%)"
    assert lines["cost of the mentor"] == "1.25"
    assert "  probes" not in dict(Bill().rows())


def test_the_text_at_the_end_is_plain_ascii_and_shows_a_trial_only_where_there_was_one():
    trial = Counters(recovery=Tallies({"hint/all": Tally(40, 30), "control/all": Tally(40, 10)}))
    text = closing_text(COUNTED + trial, priced=True)
    assert text.isascii()
    assert "30 of 40" in text
    assert "+50.0 points [+28.5, +65.3]" in text
    assert "hint withheld |" not in closing_text(COUNTED, priced=True)


# The ledger.


def test_further_requests_of_a_question_are_calls_retries_and_errors():
    ledger = Ledger()
    ledger.begin(Role.REPAIR)
    ledger.end(Role.REPAIR, 1.0, Outlay(3, Usage(7, 2)), answered=True)
    ledger.begin(Role.REPAIR, retry=True)
    ledger.end(Role.REPAIR, 1.0, Outlay(2, Usage(1, 1)), answered=False)
    spent = ledger.take().of(Role.REPAIR)
    assert (spent.calls, spent.retries, spent.errors) == (5, 4, 4)
    assert (spent.prompt_tokens, spent.completion_tokens, spent.seconds) == (8, 3, 2.0)


def test_a_question_that_was_not_asked_after_all_is_no_call():
    ledger = Ledger()
    ledger.begin(Role.JUDGMENT)
    ledger.end(Role.JUDGMENT, 0.0, outlay_of(EndpointPausedError("paused")), answered=False)
    assert ledger.take().total == RoleSpending()


def test_what_is_taken_is_taken_once_and_together_it_is_all():
    ledger, taken = Ledger(lambda usage: usage.prompt_tokens / 10), []

    def ask(number):
        ledger.begin(Role.GENERATION)
        if number % 10 == 0:
            taken.append(ledger.take())
        ledger.end(Role.GENERATION, 0.0, Outlay(1, Usage(number, 1)), answered=True)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(ask, range(400)))
    total = sum(taken, Spending()) + ledger.take()
    assert (total.total.calls, total.total.prompt_tokens) == (400, sum(range(400)))
    assert total.cost == pytest.approx(sum(range(400)) / 10)
    assert ledger.take().total == RoleSpending()


def test_a_ledger_waits_for_what_is_under_way_but_not_for_ever():
    ledger = Ledger()
    assert ledger.settle(0.0) == 0
    ledger.begin(Role.GENERATION)
    assert ledger.settle(0.01) == 1
    ledger.end(Role.GENERATION, 0.0, Outlay(1), answered=True)
    assert ledger.settle(60.0) == 0


@pytest.mark.parametrize("tokens", [-1, 2**40, 1.5, "7", None, True])
def test_what_is_no_count_of_tokens_is_none(tokens):
    assert outlay_of(Reply("x", Usage(tokens, 3))) == Outlay(1, Usage(0, 3))


def test_whatever_says_nothing_of_its_requests_made_one():
    assert outlay_of(ValueError("odd")) == outlay_of(None) == outlay_of(BackendError("down")) == Outlay(1)


@pytest.mark.parametrize("completion", [{"choices": []}, {"choices": [{"message": {"content": [1]}}]}, {"choices": 3}])
def test_an_answer_that_is_no_reply_is_billed_with_what_the_endpoint_counted(completion):
    with pytest.raises(BackendError) as caught:
        read_reply({**completion, "usage": {"prompt_tokens": 70, "completion_tokens": 9}})
    assert outlay_of(caught.value) == Outlay(1, Usage(70, 9))


def test_the_end_of_a_run_says_what_became_of_the_groups_and_what_carried_over():
    answered = Tallies({"rescued": Tally(4, 3), "skipped": Tally(2, 0), "arm:hint": Tally(3, 3)})
    text = closing_text(
        Counters(groups=9, collapsed=5, rescued=2, skipped=3, transfer=answered, reliance_sum=-1.5, reliance_count=3),
        priced=False,
    )
    said = " ".join(text.split())
    assert "| collapsed: every completion failed | 5 |" in said
    assert "| not re-rolled | 3 |" in said
    assert "Of 4 times that a prompt came round again which had been rescued, it was solved" in said
    assert "Of 2 times that a prompt came round again which had been collapsed and not rescued, it was" in said
    assert "Hint reliance: -0.50 nats per token." in said
    assert "where it was withheld" not in said  # the other arm has none

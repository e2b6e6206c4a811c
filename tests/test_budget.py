"""Budgets: what they let through, in any number of threads, and what a mentor does once they are spent."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import said

from trl_mentor.backends.scripted import ScriptedBackend
from trl_mentor.budget import Budget
from trl_mentor.budget_limits import Prices, read_limits, read_prices, refuse_batch_limits
from trl_mentor.errors import BudgetSpentError, ConfigError, EndpointPausedError
from trl_mentor.mentor import Mentor
from trl_mentor.records import Attempt, CollapsedGroup, EventKind, HintOrigin, Reply, Role, Usage
from trl_mentor.settings import MentorArguments
from trl_mentor.spending import Outlay, RoleSpending, Spending

PRICES = {"prompt": 2.0, "completion": 10.0, "cached": 0.5}


def spend(allowance, *usages):
    for usage in usages:
        allowance.admit()
        allowance.settle(Outlay(1, usage or Usage()), answered=usage is not None)


def spent(cost=0.0, **taken):
    return Spending({"generation": RoleSpending(**taken)}, cost=cost)


def refusal(allowance):
    with pytest.raises(BudgetSpentError) as caught:
        allowance.admit()
    return str(caught.value)


def share(budget):
    return budget.shares(1)[0]


# Limits and prices.


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ({"batch_call": 9}, "'batch_call'; known are batch_calls, batch_tokens, batch_cost, run_calls"),
        ({"run_calls": "9"}, "'run_calls'.* is '9'; expected a number above 0"),
        ({"run_calls": -9}, "is -9; expected a number above 0"),
        ({"run_tokens": 0}, "is 0; expected a number above 0"),
        ({"run_tokens": True}, "is True; expected a number"),
        ({"run_tokens": float("nan")}, "is nan; expected a number"),
        ({"run_tokens": 10**400}, "expected a number above 0"),
        ({"run_tokens": 10.5}, "is 10.5; expected a whole number"),
        ({"run_cost": 5, "batch_cost": 1}, "run_cost and batch_cost, which needs prices"),
        ([9], "expected an object with some of batch_calls"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused_with_what_is_known(limits, complaint):
    with pytest.raises(ConfigError, match=f"budget.*{complaint}"):
        read_limits(limits, None)


@pytest.mark.parametrize(
    ("prices", "complaint"),
    [
        ({"promt": 1.0, "completion": 1.0}, "'promt'; known are prompt, completion, cached"),
        ({"prompt": 1.0}, "lacks completion"),
        ({"prompt": 1.0, "completion": -1.0}, "'completion'.* is -1.0; expected a number at least 0"),
        ({"prompt": 1.0, "completion": "2"}, "is '2'; expected a number"),
    ],
)
def test_a_price_that_cannot_be_meant_is_refused_with_what_is_known(prices, complaint):
    with pytest.raises(ConfigError, match=f"prices.*{complaint}"):
        read_prices(prices)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"mentor_budget": '{"run_call": 5}'}, "mentor_budget.*'run_call'"),
        ({"mentor_budget": {"run_cost": 5}}, "run_cost, which needs mentor_prices"),
        ({"mentor_prices": {"prompt": 1}}, "mentor_prices lacks completion"),
        ({"mentor_budget": {"batch_calls": 9}, "mentor_schedule": "ahead"}, "batch_calls.*ahead.*use run_calls"),
        ({"mentor_cache_dir": ""}, "mentor_cache_dir"),
    ],
)
def test_the_settings_are_refused_under_their_own_names(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        MentorArguments(**settings)


def test_a_limit_below_one_hint_is_refused_and_a_hint_of_an_ablation_takes_less():
    with pytest.raises(ConfigError, match="batch_calls=2 is below the 3 calls"):
        Mentor(ScriptedBackend({}), budget={"batch_calls": 2})
    Mentor(ScriptedBackend({}), budget={"batch_calls": 2}, ablation="no_judge")


def test_limits_by_batch_are_refused_where_there_is_no_batch():
    refuse_batch_limits({"run_calls": 9})
    refuse_batch_limits(None)
    with pytest.raises(ConfigError, match=r"batch_cost.*use run_cost"):
        refuse_batch_limits({"batch_cost": 9})


def test_what_the_endpoint_had_cached_is_cheaper_and_as_dear_as_the_rest_unless_told():
    usage = Usage(prompt_tokens=1_000, completion_tokens=100, cached_tokens=800)
    assert Prices(2.0, 10.0, 0.5).cost(usage) == pytest.approx((200 * 2 + 800 * 0.5 + 100 * 10) / 1e6)
    assert read_prices({"prompt": 2, "completion": 10}) == Prices(2, 10, 2)
    assert Prices(2.0, 10.0, 0.5).cost(Usage(10, 0, cached_tokens=99)) == pytest.approx(10 * 0.5 / 1e6)


# What is let through.


def test_without_limits_everything_is():
    spend(share(Budget()), *[Usage(10**9, 10**9)] * 50)


def test_calls_are_counted_exactly_failed_ones_too_and_those_that_were_never_made_not():
    allowance = share(Budget({"run_calls": 4}))
    spend(allowance, Usage(1, 1), None)
    allowance.admit()
    allowance.settle(Outlay(0), answered=False)
    spend(allowance, Usage(1, 1), Usage(1, 1))
    assert refusal(allowance) == "the budget run_calls=4 is spent"


def test_a_call_that_took_further_tries_is_as_many_calls():
    allowance = share(Budget({"run_calls": 4}))
    allowance.admit()
    allowance.settle(Outlay(3, Usage(1, 1)))
    spend(allowance, Usage(1, 1))
    assert refusal(allowance) == "the budget run_calls=4 is spent"


@pytest.mark.parametrize("limits", [{"batch_tokens": 100}, {"run_tokens": 100}, {"run_cost": 0.0002}])
def test_tokens_and_money_are_spent_with_the_call_that_reaches_the_limit(limits):
    allowance = share(Budget(limits, {"prompt": 2, "completion": 2}))
    spend(allowance, Usage(40, 20), Usage(50, 10))
    (name,) = limits
    assert refusal(allowance).startswith(f"the budget {name}=")
    assert refusal(allowance).endswith("is spent")


def test_a_new_batch_has_the_limits_of_a_batch_anew_and_those_of_the_run_not():
    budget = Budget({"batch_calls": 3, "run_calls": 6})
    for _ in range(2):
        allowance = share(budget)
        spend(allowance, *[Usage(1, 1)] * 3)
        assert "_calls" in refusal(allowance)
    assert refusal(share(budget)) == "the budget run_calls=6 is spent"


def test_a_group_begins_only_with_enough_for_a_hint_and_the_first_come_first():
    first, second, third = Budget({"batch_calls": 8}).shares(3)
    assert "does not reach for 3 more calls" in refusal(third)
    spend(second, *[Usage(1, 1)] * 3)
    spend(first, *[Usage(1, 1)] * 5)  # what nobody set aside is for whoever comes
    assert "is spent" in refusal(first)


def test_what_a_group_set_aside_and_did_not_need_goes_to_the_others():
    first, second = Budget({"batch_calls": 4}).shares(2)
    spend(first, Usage(1, 1))
    refusal(second)
    first.close()
    first.close()
    spend(second, *[Usage(1, 1)] * 3)
    refusal(second)


def test_a_group_that_has_begun_goes_on_and_the_next_begins_only_if_a_hint_of_the_average_size_fits():
    first, second, third = Budget({"batch_tokens": 2_000}).shares(3)
    spend(first, *[Usage(500, 0)] * 3)
    assert "does not reach for 3 more calls" in refusal(second)
    assert "does not reach for 3 more calls" in refusal(third)


def test_a_resumed_run_goes_on_from_what_it_has_spent_and_a_new_one_from_nothing():
    budget = Budget({"run_calls": 9, "run_tokens": 1_000, "run_cost": 0.005}, PRICES)
    budget.begin_run(spent(calls=9))
    assert "run_calls" in refusal(share(budget))
    budget.begin_run(spent(calls=3, prompt_tokens=900, completion_tokens=100))
    assert "run_tokens" in refusal(share(budget))
    budget.begin_run(spent(cost=0.005, calls=3, completion_tokens=500))
    assert "run_cost" in refusal(share(budget))
    budget.begin_run()
    spend(share(budget), Usage(1, 1))


@pytest.mark.parametrize("limits", [{"run_calls": 100}, {"batch_calls": 100}])
def test_64_threads_make_exactly_as_many_calls_as_are_allowed(limits):
    made, together = [], threading.Barrier(64)
    allowances = Budget(limits, least_calls=1).shares(64)

    def work(allowance):
        together.wait()
        for _ in range(10):
            try:
                allowance.admit()
            except BudgetSpentError:
                return
            made.append(1)
            time.sleep(0)
            allowance.settle(Outlay(1, Usage(1, 1)))

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(work, allowances))
    assert len(made) == 100


def test_64_threads_pass_a_limit_of_tokens_by_no_more_than_the_calls_in_flight():
    made, together = [], threading.Barrier(64)
    budget = Budget({"run_tokens": 5_000})

    def work(allowance):
        together.wait()
        with suppress(BudgetSpentError):
            for _ in range(10):
                allowance.admit()
                made.append(1)
                time.sleep(0.001)
                allowance.settle(Outlay(1, Usage(90, 10)))
        allowance.close()

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(work, budget.shares(64)))
    assert 0 < len(made) < 50 + 64
    while len(made) <= 50 - 3:  # what the threads left is for whoever comes later
        spend(share(budget), *[Usage(90, 10)] * 3)
        made += [1] * 3
    refusal(share(budget))


# Mentors with budgets.

GOOD = {
    Role.ATTRIBUTION: said.diagnosis("counts 1 as prime"),
    Role.GENERATION: "Which whole numbers have exactly two divisors?",
    Role.JUDGMENT: said.verdict("HIGH", "points at the definition"),
    Role.REPAIR: said.repaired("Think about whether 1 has two different divisors."),
}
GROUP = CollapsedGroup("How many primes lie below 100?", (Attempt("2, 3, 5 ... so 24", 0.0),), answer="25")


def origins(guidances):
    return [guidance.origin for guidance in guidances]


def events(mentor):
    return [event.kind for event in mentor.take_events()]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_as_many_groups_get_hints_as_the_batch_can_pay_and_the_others_say_why(concurrency):
    backend = ScriptedBackend(GOOD)
    mentor = Mentor(backend, budget={"batch_calls": 7}, max_concurrency=concurrency)
    guidances = mentor.guide([GROUP] * 5)
    assert origins(guidances) == [HintOrigin.ACCEPTED] * 2 + [HintOrigin.NOT_ASKED] * 3
    assert all(guidance.hint is None and guidance.calls == () for guidance in guidances[2:])
    assert "the budget batch_calls=7" in guidances[2].reason
    assert len(backend.requests) == 6
    assert origins(mentor.guide([GROUP])) == [HintOrigin.ACCEPTED]


def test_a_group_whose_budget_ends_in_the_middle_keeps_its_record_and_gets_no_hint():
    backend = ScriptedBackend(GOOD | {Role.JUDGMENT: said.verdict("LOW", "vague")})
    (guidance,) = Mentor(backend, budget={"batch_calls": 4}).guide([GROUP])
    assert (guidance.hint, guidance.origin) == (None, HintOrigin.NOT_ASKED)
    assert guidance.reason == "the budget batch_calls=4 is spent"
    assert [call.role for call in guidance.calls] == [Role.ATTRIBUTION, Role.GENERATION, Role.JUDGMENT, Role.REPAIR]
    assert guidance.diagnosis == ("counts 1 as prime",)
    assert [draft.verdict is None for draft in guidance.drafts] == [False, True]


def test_a_spent_budget_is_said_once_and_nothing_more_is_asked(caplog):
    backend = ScriptedBackend(GOOD)
    mentor = Mentor(backend, budget={"run_calls": 3})
    for _ in range(3):
        mentor.guide([GROUP])
    assert len(backend.requests) == 3
    assert events(mentor) == [EventKind.BUDGET_SPENT]
    assert [record.message for record in caplog.records] == [
        "trl-mentor: the budget run_calls=3 is spent; training goes on without hints"
    ]


def test_a_batch_that_is_too_large_for_its_budget_is_another_event_and_said_once_too():
    mentor = Mentor(ScriptedBackend(GOOD), budget={"batch_calls": 3})
    for _ in range(3):
        mentor.guide([GROUP, GROUP])
    assert events(mentor) == [EventKind.BUDGET_SHORT]


def test_a_budget_below_the_price_of_a_hint_is_said_to_bring_none(caplog):
    prices = {"prompt": 1.0, "completion": 1.0}
    mentor = Mentor(ScriptedBackend(GOOD), budget={"batch_cost": 1e-5}, prices=prices)
    mentor.guide([GROUP])  # what a hint costs is known only after the first
    for _ in range(3):
        assert origins(mentor.guide([GROUP])) == [HintOrigin.NOT_ASKED]
    (said,) = [message for message in caplog.messages if "no group gets one" in message]
    assert said.startswith("trl-mentor: the budget batch_cost=1e-05 does not reach for one hint (about 0.00")
    assert said.endswith("on average): no group gets one; raise it")


def test_a_limit_of_tokens_that_the_endpoint_does_not_count_is_said_to_be_none(caplog):
    mentor = Mentor(ScriptedBackend(lambda role, messages: Reply(GOOD[role])), budget={"run_tokens": 10})
    assert origins(mentor.guide([GROUP] * 3)) == [HintOrigin.ACCEPTED] * 3
    assert events(mentor) == [EventKind.BUDGET_SHORT]
    assert "run_tokens cannot hold: limit the calls" in caplog.text


def test_a_backend_that_is_paused_was_not_asked_and_costs_no_budget():
    def paused(role, messages):
        raise EndpointPausedError("left alone")

    mentor = Mentor(ScriptedBackend(paused), budget={"run_calls": 3})
    (guidance,) = mentor.guide([GROUP])
    assert (guidance.origin, guidance.calls) == (HintOrigin.NOT_ASKED, ())
    mentor.plan.backend._endpoints[0].backend = ScriptedBackend(GOOD)
    assert origins(mentor.guide([GROUP])) == [HintOrigin.ACCEPTED]


def test_the_threads_of_background_mentoring_share_the_budget_of_the_run():
    backend = ScriptedBackend(GOOD)
    mentor = Mentor(backend, budget={"run_calls": 30})
    with ThreadPoolExecutor(16) as pool:
        guidances = [guidance for found in pool.map(mentor.guide, [[GROUP]] * 40) for guidance in found]
    assert len(backend.requests) == 30
    assert sorted(map(str, origins(guidances))) == ["accepted"] * 10 + ["not_asked"] * 30


def test_calls_that_hang_past_the_deadline_stay_on_the_bill():
    release = threading.Event()

    class Hung:
        def chat(self, messages, *, role, timeout, schema=None):
            release.wait(10)
            return Reply(GOOD[role], Usage(1, 1))

    mentor = Mentor(Hung(), budget={"run_calls": 5}, deadline=0.5)
    assert origins(mentor.guide([GROUP, GROUP])) == [HintOrigin.FAILED, HintOrigin.NOT_ASKED]
    assert origins(mentor.guide([GROUP, GROUP])) == [HintOrigin.FAILED, HintOrigin.NOT_ASKED]
    release.set()


def test_the_bookkeeping_does_not_grow_with_the_groups():
    mentor = Mentor(ScriptedBackend(lambda role, messages: GOOD[role]), budget={"run_calls": 30})
    for _ in range(50):
        mentor.guide([GROUP] * 2)
    ledger = mentor.budget._run
    assert (ledger.spent["calls"], ledger.reserved, ledger.begun) == (30, 0, 0)

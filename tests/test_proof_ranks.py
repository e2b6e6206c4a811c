"""The control arm, transfer, probes, hint reliance and the dosage on two processes, one case after the other."""

from __future__ import annotations

from typing import Any

import distributed_run
import pytest
import tiny
from by_hand import assert_close, expected, reliances
from letters import probes, returned

from trl_mentor import read_journal
from trl_mentor.dosage import Decay, Dosage
from trl_mentor.plain import from_plain
from trl_mentor.records import Arm, Assignment, RerollOutcome
from trl_mentor.tallies import Tallies, Tally

RESCUED, SATURATED, COLLAPSED, SKIPPED, _ = RerollOutcome
STEPS = 4
TRIED = {"max_steps": STEPS, "mentor_control_fraction": 0.5}
STRADDLING = {"num_generations": 4, "per_device_train_batch_size": 6}
"""Three groups over two ranks of six rows each: the middle one has two rows on either."""

CASES: dict[str, dict[str, Any]] = {
    "two": {"hard": [1, 3, 5, 7], "per_device_train_batch_size": 8, **TRIED},
    # Three rows on two ranks: one of them is generated twice.
    "padded": {
        "hard": [1, 5],
        "per_device_train_batch_size": 6,
        "num_generations": 3,
        **TRIED,
        "mentor_control_fraction": 0.9,
    },
    "returns": {
        "rolls": {
            "first": {"0": "ccca", "1": "cccm", "2": "ca", "3": "ccm", "4": "aaaa", "5": "cccc"},
            "mentor/reroll": {"1": "c", "5": "a"},
        },
        "rows": 6,
        "max_steps": 4,
        **STRADDLING,
    },
    "probes": {
        "rolls": {
            "first": {"0": "c", "1": "c", "2": "c", "4": "c", "9": "c"},
            "mentor/reroll": {"1": "c"},
            "mentor/probe": {"0": "m", "1": "c", "4": "m"},
        },
        "rows": 12,
        "max_steps": 4,
        "mentor_probe_steps": 1,
        "mentor_probe_prompts": 3,
        "mentor_hint_reliance": True,
        **STRADDLING,
    },
    "dosage": {
        "rolls": {"first": dict.fromkeys("012345", "c")},
        "rows": 6,
        "max_steps": 6,
        "mentor_start_step": 1,
        "mentor_decay": "linear",
        **STRADDLING,
    },
    "reliance": {
        "rolls": {"first": {"0": "c", "1": "c", "2": "c"}},
        "rows": 6,
        "mentor_hint_reliance": True,
        **STRADDLING,
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("two_ranks")


@pytest.fixture(scope="module")
def seen(folder):
    """What each of two ranks saw of each case."""
    return distributed_run.launch(folder, CASES)


def test_two_processes_draw_what_one_draws(seen, folder, tmp_path):
    tiny.trained(tmp_path, **TRIED)
    drawn = [
        [(item.collapsed_at, item.group.index, item.arm) for item in read_journal(run)]
        for run in (folder / "two" / "run", tmp_path)
    ]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 2 * STEPS
    assert {arm for _, _, arm in drawn[0]} == {Arm.HINT, Arm.CONTROL}


def test_ranks_that_share_groups_hold_the_same_ones_back_by_their_place_among_all(seen, folder):
    ranks, journal, dosage = seen["dosage"], read_journal(folder / "dosage" / "run"), Dosage(7, 1, Decay.LINEAR, 6)
    outcomes = {(item.step, item.group.index): item.outcome for item in journal}
    assert outcomes.keys() == {(step, index) for step in range(6) for index in range(3)}
    for item in journal:
        mentored = dosage.objection(Assignment(item.group, {}, item.step)) is None
        assert item.outcome is (RESCUED if mentored else SKIPPED)
    held = sum(outcome is SKIPPED for outcome in outcomes.values())
    assert 3 < held < 15  # more than those before the start
    assert [rank["totals"]["held_back"] for rank in ranks] == [held] * 2
    # The first hints are given in the second batch of twelve rows.
    assert [rank["totals"]["echo_checked"] for rank in ranks] == [48] * 2
    assert ranks[0]["memory"] == ranks[1]["memory"] != []
    for (step, index), outcome in outcomes.items():
        rows = [row for rank in ranks for row in rank["advantages"][step]][4 * index : 4 * index + 4]
        assert all(rows) if outcome is RESCUED else not any(rows)


@pytest.mark.parametrize("case", ["two", "padded"])
def test_the_tokens_of_the_arms_add_up_over_the_ranks(seen, folder, case):
    first, second = (rank["totals"] for rank in seen[case])
    journal = read_journal(folder / case / "run")
    assert second["control_tokens"] == first["control_tokens"]
    assert first["control_tokens"] == sum(item.reroll_tokens for item in journal if item.arm is Arm.CONTROL) > 0
    assert first["reroll_tokens"] == sum(item.reroll_tokens for item in journal) + first["padding_tokens"]
    assert (first["padding_tokens"] > 0) is (case == "padded")


def test_ranks_that_share_groups_remember_and_count_the_same(seen, folder):
    assert read_journal(folder / "returns" / "run").returns == [
        returned(2, 0, 0, RESCUED, 0),
        returned(2, 1, 0, COLLAPSED, 0),
        returned(2, 2, 0, RESCUED, 4),
        returned(3, 3, 1, RESCUED, 2),
        returned(3, 5, 1, SATURATED, 0),
    ]
    first, second = seen["returns"]
    assert first["memory"] == second["memory"] != []
    assert first["totals"]["transfer"] == second["totals"]["transfer"]
    assert from_plain(Tallies, first["totals"]["transfer"])["rescued"] == Tally(3, 2)


def test_ranks_share_a_probe_evenly_in_whole_groups(seen, folder):
    # 0, 1 and 2 collapse in the first step, 4 in the second, none in the third.
    ranks = seen["probes"]
    assert probes(folder / "probes" / "run") == {
        1: [(0, RESCUED, 2), (1, COLLAPSED, 0), (2, RESCUED, 4)],
        2: [(4, RESCUED, 2)],
    }
    shared = [[call["prompts"] for call in rank["calls"] if call["kind"] == "mentor/probe"] for rank in ranks]
    assert [[len(prompts) for prompts in rank] for rank in shared] == [[6, 2]] * 2
    for first, second in zip(*shared, strict=True):
        together = first + second
        assert [together[start : start + 4] for start in range(0, len(together), 4)] == [
            [together[start]] * 4 for start in range(0, len(together), 4)
        ]
    assert ranks[0]["probes"] == ranks[1]["probes"]
    tokens = sum(call["tokens"] for rank in ranks for call in rank["calls"] if call["kind"] == "mentor/probe")
    assert [rank["totals"]["probe_tokens"] for rank in ranks] == [tokens] * 2
    probed = Tallies({"rescued": Tally(3, 3), "still_collapsed": Tally(1, 0)})
    assert [from_plain(Tallies, rank["totals"]["probed"]) for rank in ranks] == [probed] * 2


def test_ranks_measure_each_its_share_of_an_odd_number_of_groups(seen, folder):
    ranks = seen["reliance"]
    rows = [row for rank in ranks for row in rank["batches"][0]]
    by_hand = expected(tiny.model(), [(tuple(prompt), tuple(completion)) for prompt, completion in rows])
    assert len(by_hand) == 12
    assert_close(reliances(folder / "reliance" / "run", 0), by_hand)
    assert [rank["totals"]["reliance_count"] for rank in ranks] == [6, 6]
    for name in ("reliance_sum", "reliance_lowest_sum", "reliance_total_sum", "hinted_entropy_sum", "entropy_tokens"):
        assert ranks[0]["totals"][name] == ranks[1]["totals"][name] != 0

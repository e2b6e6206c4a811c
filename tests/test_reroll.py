from __future__ import annotations

import math

import pytest

from trl_mentor.reroll import local_rows, plan_reroll

SHAPES = [(groups, size, world) for groups in (1, 2, 3, 7) for size in (1, 2, 3, 4, 8) for world in (1, 2, 3, 4, 6)]


@pytest.mark.parametrize(("groups", "size", "world"), SHAPES)
def test_every_row_is_generated_and_every_rank_has_the_same_share(groups, size, world):
    plan = plan_reroll(groups, group_size=size, world_size=world)
    shares = [plan.share(rank) for rank in range(world)]
    assert {len(share) for share in shares} == {plan.per_rank}
    assert sum(shares, ())[: plan.real] == tuple(range(groups * size))


@pytest.mark.parametrize(("groups", "size", "world"), SHAPES)
def test_the_ranks_together_hold_whole_groups_in_order(groups, size, world):
    rows = plan_reroll(groups, group_size=size, world_size=world).rows
    assert len(rows) % size == 0
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        assert block == tuple(range(block[0], block[0] + size))
        assert block[0] % size == 0


@pytest.mark.parametrize(("groups", "size", "world"), SHAPES)
def test_padding_never_adds_a_whole_round(groups, size, world):
    plan = plan_reroll(groups, group_size=size, world_size=world)
    unit = size // math.gcd(size, world)
    assert plan.per_rank - math.ceil(groups * size / world) < unit


def test_one_collapsed_group_is_shared_by_two_ranks():
    assert plan_reroll(1, group_size=4, world_size=2).share(1) == (2, 3)


def test_a_group_that_straddles_ranks_is_found_in_parts():
    # two ranks of 6 rows, groups of 4: group 1 is rows 4-7, two of them on each rank
    assert local_rows([1], group_size=4, rank=0, rows_per_rank=6) == [(4, 0), (5, 1)]
    assert local_rows([1], group_size=4, rank=1, rows_per_rank=6) == [(0, 2), (1, 3)]


def test_a_rank_without_selected_rows_gets_an_empty_list():
    assert local_rows([0], group_size=4, rank=1, rows_per_rank=4) == []


def test_an_empty_plan_is_refused():
    with pytest.raises(ValueError, match="groups=0"):
        plan_reroll(0, group_size=4, world_size=2)

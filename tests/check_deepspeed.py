"""DeepSpeed on two CPU processes. Not part of `make test`, which has no DeepSpeed: `make test-deepspeed` runs it."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from test_sharded import (
    PARAMETERS,
    assert_generated_in_step,
    assert_resumable,
    assert_trained_alike,
    launch_sharded,
    plain,  # noqa: F401
)


def test_deepspeed_is_installed():
    assert find_spec("deepspeed"), "these tests need `pip install deepspeed`; make test-deepspeed does that"


@pytest.mark.parametrize(
    ("name", "stage", "held"),
    [
        ("zero2", 2, [PARAMETERS, PARAMETERS]),
        ("zero3", 3, [PARAMETERS // 2, PARAMETERS // 2]),  # re-rolled under gathered weights
    ],
)
def test_zero_trains_the_same_rows_to_the_same_weights(tmp_path, plain, name, stage, held):  # noqa: F811
    ranks = launch_sharded(tmp_path / name, name)
    assert [(rank["kind"], rank["zero_stage"]) for rank in ranks] == [("DEEPSPEED", stage)] * 2
    assert [rank["held"] for rank in ranks] == held
    assert_trained_alike(ranks, plain)
    assert_generated_in_step(ranks)
    states = sorted((tmp_path / name / "run" / "checkpoint-2" / "global_step2").glob("*.pt"))
    assert len(states) > 2
    assert_resumable(tmp_path / name / "run" / "checkpoint-2", *(f"global_step2/{file.name}" for file in states))

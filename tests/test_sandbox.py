"""Programs that nobody vouches for, in every tier that this machine has: what they are kept from, and their end."""

from __future__ import annotations

import uuid

import pytest
from boxes import command, folder, starter, survivors, target
from hostile import PROGRAMS, QUICK, TOO_MUCH

from trl_mentor.sandbox import Isolation

__all__ = ["folder", "target"]


def cases() -> list[object]:
    return [
        pytest.param(tier, program, id=f"{tier.value}-{program.name}")
        for tier in Isolation
        for program in PROGRAMS
        if tier in program.where
    ]


@pytest.mark.parametrize(("tier", "program"), cases())
def test_a_program_ends_as_it_must_and_nothing_of_it_is_left(tier, program, folder, target):
    start, python = starter(tier)
    marker = uuid.uuid4().hex
    result = start.run(command(python, program.code, marker, *target.arguments), {}, b"", program.limits)
    assert (result.ending, result.exit_code) == (program.ending, program.exit_code), result
    if program.ending is TOO_MUCH:
        assert len(result.stdout + result.stderr) >= QUICK.output_bytes
        assert max(len(result.stdout), len(result.stderr)) == QUICK.output_bytes
    elif program.stdout is not None:
        assert result.stdout == program.stdout, result
    assert survivors(marker, folder) == []
    assert target.untouched()

"""What a run counts and writes down, where its checkpoints and its journal come from different places."""

from __future__ import annotations

import json

import pytest
import tiny

from trl_mentor import read_journal
from trl_mentor.journal import JOURNAL_PATH
from trl_mentor.records import Arm, RerollOutcome, Return
from trl_mentor.transfer import transfer


def test_a_run_resumed_into_another_directory_begins_its_journal_with_what_it_took_over(tmp_path):
    tiny.trained(tmp_path / "a", max_steps=2, save_strategy="steps", save_steps=1)
    resumed = tiny.trainer(tmp_path / "b", max_steps=3)
    resumed.train(str(tmp_path / "a" / "checkpoint-2"))
    read = read_journal(tmp_path / "b").totals
    assert (read.batches, read.groups) == (3, resumed.mentor_totals.groups)
    assert (read.policy_tokens, read.calls) == (resumed.mentor_totals.policy_tokens, resumed.mentor_totals.calls)
    again = tiny.trainer(tmp_path / "b", max_steps=4, save_strategy="steps", save_steps=1)
    again.train(str(tmp_path / "a" / "checkpoint-2"))
    assert read_journal(tmp_path / "b").totals.batches == again.mentor_totals.batches == 4


def test_probes_say_nothing_of_the_arms_since_what_the_arms_brought_decides_who_is_probed():
    returns = [
        Return(3, "k", 1, RerollOutcome.RESCUED, Arm.HINT, successes=1, completions=4, probe=probe)
        for probe in (True, False)
    ]
    assert set(transfer(returns[:1]).cells) == {"rescued"}
    assert set(transfer(returns[1:]).cells) == {"rescued", "arm:hint"}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_line_with_a_number_that_is_none_is_skipped_like_a_torn_one(tmp_path, number):
    tiny.trained(tmp_path)
    path = tmp_path / JOURNAL_PATH
    lines = path.read_text().splitlines()
    position = next(i for i, line in enumerate(lines) if "completions" in json.loads(line))
    data = json.loads(lines[position])
    data["successes"][0] = 12345.5
    lines[position] = json.dumps(data).replace("12345.5", number)
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match="skipped 1 unreadable line"):
        records = read_journal(tmp_path)
    assert (len(records), records.skipped_lines) == (1, 1)

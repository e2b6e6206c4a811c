from __future__ import annotations

import pytest
from trl import GRPOTrainer

from trl_mentor.contract import Generated, check_contract
from trl_mentor.errors import ContractError


def test_the_installed_trl_has_the_interface_that_the_seam_was_written_against():
    check_contract(GRPOTrainer)


@pytest.mark.parametrize("version", ["1.14.1", "1.15.0", "1.17.0", "0.24.0"])
def test_a_version_outside_the_tested_range_is_refused_with_the_range(version):
    with pytest.raises(ContractError, match=r"tested with trl.*>=1\.14\.2") as caught:
        check_contract(GRPOTrainer, version=version)
    assert version in str(caught.value)


def test_another_shape_of_what_is_generated_is_refused():
    class Nine(GRPOTrainer):
        def _generate(self, prompts):
            prompt_ids = completion_ids = prompts
            return prompt_ids, completion_ids

    with pytest.raises(ContractError, match="_generate returns"):
        check_contract(Nine)


def test_changed_parameters_are_refused():
    class Renamed(GRPOTrainer):
        def _calculate_rewards(self, inputs, prompts, completions):
            return None

    with pytest.raises(ContractError, match="_calculate_rewards takes"):
        check_contract(Renamed)


def test_a_trainer_rewritten_by_unsloth_is_refused_by_name():
    class UnslothGRPOTrainer(GRPOTrainer):
        pass

    with pytest.raises(ContractError, match="Unsloth"):
        check_contract(UnslothGRPOTrainer)


def test_the_fields_of_a_generation_are_those_trl_returns():
    assert Generated._fields[:2] == ("prompt_ids", "completion_ids")
    assert len(Generated._fields) == 8

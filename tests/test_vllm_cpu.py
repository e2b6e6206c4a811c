"""Where TRL's weight sync is replaced; that the replacement works is shown with real engines, in `vllm_engine`."""

from __future__ import annotations

import pytest
from trl.generation.vllm_generation import VLLMGeneration

from trl_mentor.vllm_cpu import CPUGeneration, colocated_generation


@pytest.mark.parametrize("device", ["cuda", "xpu", "npu", "tpu"])
def test_an_engine_on_an_accelerator_keeps_trls_own_sync(device):
    assert colocated_generation(device) is VLLMGeneration


def test_an_engine_on_a_cpu_gets_a_sync_of_its_own_and_keeps_the_rest():
    assert colocated_generation("cpu") is CPUGeneration
    assert CPUGeneration.sync_weights is not VLLMGeneration.sync_weights
    assert CPUGeneration.generate is VLLMGeneration.generate

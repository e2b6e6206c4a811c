"""Where TRL's weight sync is replaced; that the replacement works is shown with real engines, in `vllm_engine`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from trl.generation.vllm_generation import VLLMGeneration

from trl_mentor.vllm_cpu import CPUGeneration, use_cpu_engine


class PatchedGeneration(VLLMGeneration):
    """A generation class of somebody's own."""


@pytest.mark.parametrize(
    ("device", "use_vllm", "mode", "expected"),
    [
        ("cpu", True, "colocate", CPUGeneration),
        ("cpu", True, "server", PatchedGeneration),
        ("cpu", False, "colocate", PatchedGeneration),
        ("cuda", True, "colocate", PatchedGeneration),
        ("npu", True, "colocate", PatchedGeneration),
    ],
)
def test_only_a_colocated_engine_on_a_cpu_gets_another_class(device, use_vllm, mode, expected):
    generation = object.__new__(PatchedGeneration)
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device=SimpleNamespace(type=device)),
        use_vllm=use_vllm,
        vllm_mode=mode,
        vllm_generation=generation,
    )
    use_cpu_engine(trainer)
    assert type(generation) is expected


def test_the_other_class_replaces_the_sync_and_nothing_else():
    assert CPUGeneration.sync_weights is not VLLMGeneration.sync_weights
    assert CPUGeneration.generate is VLLMGeneration.generate

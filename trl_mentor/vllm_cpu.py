"""Weight syncs into a colocated vLLM engine that runs on a CPU, so that such a run can be debugged on a laptop.

vLLM's CPU engine packs the weights of its linear layers when it loads a model and drops the originals, so TRL's way of
writing into them fails with `'Parameter' object has no attribute 'weight_loader'`. Engines on other devices keep TRL's
class as it is, and so does a server. Once the CPU engine keeps its weights loadable, a test in `tests/vllm_engine`
that counts its packed parameters fails, and this module can go.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from trl import GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration


class CPUGeneration(VLLMGeneration):  # type: ignore[misc]
    """TRL's generation with vLLM, except for how the policy's weights reach a colocated CPU engine."""

    def sync_weights(self) -> None:
        """Reload the engine's weights from the policy, adapters merged, and forget prefixes of the old ones."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": self._iter_named_params()})
        self.llm.apply_model(pack_tied_head)
        self.llm.reset_prefix_cache()


def use_cpu_engine(trainer: GRPOTrainer) -> None:
    """Make the weight syncs of a trainer work if it runs on a CPU with a colocated vLLM engine; else do nothing."""
    if trainer.accelerator.device.type == "cpu" and trainer.use_vllm and trainer.vllm_mode == "colocate":
        trainer.vllm_generation.__class__ = CPUGeneration


def pack_tied_head(model: Any) -> None:
    """Pack the output head again; one tied to the embeddings is not reloaded, and would go on with old weights."""
    head: nn.Module | None = getattr(model, "lm_head", None)
    method = getattr(head, "quant_method", None)
    if method is not None:
        method.process_weights_after_loading(head)

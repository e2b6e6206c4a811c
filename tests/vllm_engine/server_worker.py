"""What the tests add to each worker of the server: weights from a file, where TRL would send them over NCCL."""

from __future__ import annotations

from safetensors.torch import load_file


class ReloadFromFile:
    """A worker extension of vLLM; its method is called through the server's `/collective_rpc`."""

    def reload_from_file(self, path: str) -> None:
        self.reload_weights(weights_iterator=iter(load_file(path).items()))
        head = self.get_model().lm_head
        head.quant_method.process_weights_after_loading(head)

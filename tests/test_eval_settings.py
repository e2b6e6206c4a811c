"""What an evaluation knows its model by."""

from __future__ import annotations

from pathlib import Path

from trl_mentor.evaluation.settings import EngineKind, Policy, Sampling, settings_record

SIZE = 10_000_000


def weights(model: str, adapter: Path | None = None) -> str | None:
    policy = Policy(model, adapter=None if adapter is None else str(adapter))
    found: str | None = settings_record(policy, Sampling(), EngineKind.TRANSFORMERS, limit=None)["weights"]
    return found


def test_weights_of_a_directory_are_told_from_those_of_a_later_training(tmp_path):
    model, adapter = tmp_path / "model", tmp_path / "adapter"
    model.mkdir()
    adapter.mkdir()
    (model / "model.safetensors").write_bytes(bytes(SIZE))
    (adapter / "adapter_model.safetensors").write_bytes(b"a")
    first, adapted = weights(str(model)), weights(str(model), adapter)
    (model / "README.md").write_text("A model.")
    assert weights(str(model)) == first
    (model / "model.safetensors").write_bytes(bytes(SIZE // 2) + b"\1" * (SIZE // 4) + bytes(SIZE // 4))
    (adapter / "adapter_model.safetensors").write_bytes(b"b")
    assert len({first, adapted, weights(str(model)), weights(str(model), adapter)}) == 4


def test_a_model_of_the_hub_has_no_digest():
    assert weights("owner/name") is None

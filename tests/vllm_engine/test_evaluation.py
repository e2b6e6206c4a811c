"""An evaluation's vLLM engine: the completions that transformers generates, seeds and adapters."""

from __future__ import annotations

import launcher
import pytest


@pytest.fixture(scope="module", params=["plain", "adapted"])
def seen(request, tmp_path_factory):
    """What the engines wrote, vLLM with or without the adapter."""
    given = {"adapted": request.param == "adapted"}
    return request.param, launcher.run(tmp_path_factory.mktemp("evaluation"), "eval_run.py", given)[0]


def test_greedy_completions_are_those_of_transformers(seen):
    name, run = seen
    assert run["vllm"] == run[f"{name}/transformers"]
    assert run["plain/transformers"] != run["adapted/transformers"]
    *completions, too_long = run["vllm"]
    assert {made["error"] for made in completions} == {None}
    assert all(made["truncated"] == (made["tokens"] == 12) for made in completions)
    assert "the model takes 128 in all" in too_long["error"]


def test_a_sample_depends_on_its_seed_and_not_on_its_batch(seen):
    _, run = seen
    assert run["sampled"] == run["sampled alone"]
    assert run["sampled"] != run["vllm"]


def test_auto_is_transformers_without_a_gpu(seen):
    assert seen[1]["auto"] == "transformers"

"""The tests in this folder train with real vLLM engines; `make test-vllm` runs them in an environment of their own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "benchmarks"))

if importlib.util.find_spec("vllm") is None:
    raise pytest.UsageError("these tests need vLLM's CPU engine, which is not installed here; run: make test-vllm")

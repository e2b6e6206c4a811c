"""Recorders whose completions are not just what the tiny policy samples. Shared by tests of the trainer."""

from __future__ import annotations

from typing import Any

import by_hand
import tiny


class FromAnotherEngine(tiny.Recorder):
    """Reports the same sampling log-probability for each token, as if an engine of its own had generated."""

    logprob = -1.0

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        self.use_vllm = False
        completions, _ = super()._generate_single_turn(*args, **kwargs)
        self.use_vllm = True
        return completions, [[self.logprob] * len(ids) for ids in completions]


class QuotesTheHint(tiny.Recorder):
    """A policy that begins every answer under the hint by quoting it."""

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        completions, *rest = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        quotation = tiny.tokenizer()(f"Hint : {tiny.HINT}")["input_ids"]
        hinted = [tuple(ids[: len(by_hand.PREFIX)]) == by_hand.PREFIX for ids in prompt_ids]
        return [quotation + ids if quoting else ids for ids, quoting in zip(completions, hinted, strict=True)], *rest

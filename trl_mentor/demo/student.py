"""The shipped student: loading it and sampling from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from trl_mentor.demo.families import FAMILIES
from trl_mentor.demo.world import Problem, passes

CHECKPOINT = Path(__file__).parent / "checkpoint"
MAX_ANSWER_TOKENS = 40


def load_student(path: Path = CHECKPOINT) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """The pretrained student and its tokenizer, from files alone."""
    model = LlamaForCausalLM.from_pretrained(path, local_files_only=True, dtype=torch.float32)
    return model, PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)


@torch.no_grad()
def sample_answers(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[str],
    *,
    seed: int,
    batch_size: int = 256,
    max_tokens: int = MAX_ANSWER_TOKENS,
) -> list[str]:
    """One answer per prompt at temperature 1; the state of torch's generator is left as it was."""
    training = model.training
    model.eval()
    answers: list[str] = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for start in range(0, len(prompts), batch_size):
            batch = tokenizer(list(prompts[start : start + batch_size]), padding=True, return_tensors="pt")
            tokens = model.generate(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                max_new_tokens=max_tokens,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
            )
            answers += tokenizer.batch_decode(tokens[:, batch.input_ids.shape[1] :], skip_special_tokens=True)
    model.train(training)
    return answers


def accuracy_by_family(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    problems: Sequence[Problem],
    *,
    samples: int,
    seed: int,
) -> dict[str, float]:
    """Share of un-hinted answers that pass all unit tests, by family; `samples` answers to each problem."""
    asked = [problem for problem in problems for _ in range(samples)]
    answers = sample_answers(model, tokenizer, [problem.question for problem in asked], seed=seed)
    solved: dict[str, list[bool]] = {family: [] for family in FAMILIES}
    for problem, answer in zip(asked, answers, strict=True):
        solved[problem.family].append(passes(answer, problem))
    return {family: fmean(results) for family, results in solved.items() if results}


def mean_accuracy(by_family: Mapping[str, float]) -> float:
    """The mean over the families, each of which counts the same."""
    return fmean(by_family.values())

"""A tiny real policy, made in-process, and worlds in which chosen groups collapse. Shared by the trainer's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import said
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trl_mentor import Mentor, ScriptedBackend
from trl_mentor.config import MentorGRPOConfig
from trl_mentor.grpo_trainer import MentorGRPOTrainer
from trl_mentor.records import Role

WORDS = [f"w{i}" for i in range(40)]
HINT = "w30 w31 w32"
MENTOR_ANYWAY = {"cut_off": "mentor", "duplicates": "mentor"}
"""The tiny policy rarely ends a completion before the length limit, and what it is to learn is set by the rewards."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} <eos> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    words = [
        "<pad>",
        "<eos>",
        "<unk>",
        "<system>",
        "<user>",
        "<assistant>",
        "Hint",
        "Original",
        "question",
        ":",
        *WORDS,
    ]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    made.chat_template = CHAT_TEMPLATE
    return made


def model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=128,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def load(path: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(path)


def odd(i: int) -> bool:
    return i % 2 == 1


def never(i: int) -> bool:
    return False


def dataset(rows: int = 8, *, conversational: bool = False, hard: Callable[[int], bool] = odd) -> Dataset:
    """Row i asks `w<i> w<i>`; its answer is `answer-i`; rows with an odd index are hard unless told otherwise."""
    prompts: list[Any] = [f"w{i} w{i}" for i in range(rows)]
    if conversational:
        prompts = [[{"role": "system", "content": "w20"}, {"role": "user", "content": text}] for text in prompts]
    return Dataset.from_dict(
        {"prompt": prompts, "answer": [f"answer-{i}" for i in range(rows)], "hard": [hard(i) for i in range(rows)]}
    )


def backend() -> ScriptedBackend:
    """Answers every role in its form and keeps the requests."""
    return ScriptedBackend(
        {
            Role.ATTRIBUTION: said.diagnosis("confuses w1 with w2"),
            Role.GENERATION: HINT,
            Role.JUDGMENT: said.verdict("HIGH"),
            Role.REPAIR: said.repaired(HINT),
        }
    )


def mentor(**options: Any) -> Mentor:
    return Mentor(backend(), **options)


class HardRowsFail:
    """Reward of hard rows: 0 on the first roll, `reroll` (cycled over the rows) on the second. Easy rows: `easy`.

    With `rerolls` every second call is a re-roll, as it is when something collapses in each batch. Keeps every call,
    so that tests can say what was shown and how often.
    """

    def __init__(
        self,
        reroll: tuple[float | None, ...] = (1.0, 0.0),
        *,
        easy: tuple[float | None, ...] = (0.0, 1.0),
        rerolls: bool = True,
    ) -> None:
        self.__name__ = "verifier"
        self.reroll = reroll
        self.easy = easy
        self.rerolls = rerolls
        self.calls: list[dict[str, Any]] = []

    def __call__(
        self, prompts: list[Any], completions: list[Any], hard: list[bool], answer: list[str], **kwargs: Any
    ) -> list[float | None]:
        roll = "second" if self.rerolls and len(self.calls) % 2 else "first"
        self.calls.append({"roll": roll, "prompts": prompts, "completions": completions, "answer": answer})
        kwargs["log_extra"]("seen", [f"{roll} {name}" for name in answer])
        kwargs["log_metric"]("rolls", float(len(self.calls)))
        hard_values = (0.0,) if roll == "first" else self.reroll
        return [
            hard_values[i % len(hard_values)] if is_hard else self.easy[i % len(self.easy)]
            for i, is_hard in enumerate(hard)
        ]


class HardAmongEasyFail:
    """Hard rows fail on the first roll, when they come among easy ones, and half of them succeed on the second."""

    __name__ = "verifier"

    def __call__(self, prompts: list[Any], completions: list[Any], hard: list[bool], **kwargs: Any) -> list[float]:
        second = all(hard)
        return [float(i % 2 == 0) if second or not is_hard else 0.0 for i, is_hard in enumerate(hard)]


def config(output_dir: Path | str, **options: Any) -> MentorGRPOConfig:
    defaults: dict[str, Any] = {
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_completion_length": 6,
        "max_steps": 1,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "shuffle_dataset": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "seed": 7,
        "mentor_routes": MENTOR_ANYWAY,
    }
    return MentorGRPOConfig(str(output_dir), **{**defaults, **options})


class Recorder(MentorGRPOTrainer):
    """The shipped trainer, keeping what each generation batch came to before TRL shuffles it.

    `generated` counts the completion tokens that this process generated in training, where they come from.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.batches: list[dict[str, Any]] = []
        self.generated = 0

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._generate_single_turn(*args, **kwargs)
        if self._training_batch:
            self.generated += sum(map(len, found[0]))
        return found

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if self.model.training:
            self.batches.append(output)
        return output


def rows(batch: dict[str, Any]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(prompt ids, completion ids) of each row of a generation batch, without padding."""
    return [
        (
            tuple(batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()),
            tuple(batch["completion_ids"][i][batch["completion_mask"][i].bool()].tolist()),
        )
        for i in range(len(batch["prompt_ids"]))
    ]


def prompt_ids(text: str, *, chat: bool = False) -> tuple[int, ...]:
    """What the policy reads of a prompt of `dataset` with this text for its user turn."""
    words = tokenizer()
    if not chat:
        return tuple(words(text)["input_ids"])
    messages = [{"role": "system", "content": "w20"}, {"role": "user", "content": text}]
    return tuple(words.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])


def trained(output_dir: Path | str, **options: Any) -> Any:
    """A trainer as `trainer` makes it, after training; construction seeds it, so that two runs are comparable."""
    made = trainer(output_dir, **options)
    made.train()
    return made


def trainer(
    output_dir: Path | str, *, reward: Any = None, data: Any = None, cls: type = Recorder, **options: Any
) -> Any:
    """A trainer over the tiny world; `options` are config fields, except `mentor`, `strategy` and `eval_dataset`."""
    given = {name: options.pop(name) for name in ("mentor", "strategy", "eval_dataset") if name in options}
    if "strategy" in given:
        options.setdefault("mentor_routes", None)  # which that object does not look at
    if not given.keys() & {"mentor", "strategy"} and options.get("mentor_strategy", "mentor") == "mentor":
        given["mentor"] = mentor()
    return cls(
        model(),
        reward_funcs=HardRowsFail() if reward is None else reward,
        args=config(output_dir, **options),
        train_dataset=dataset() if data is None else data,
        processing_class=tokenizer(),
        **given,
    )

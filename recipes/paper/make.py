"""Writes the recipes of this folder: `python recipes/paper/make.py`.

Every line of a recipe carries its origin: the section of the paper that states it, or `ours` where it is silent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from table import NUM_GENERATIONS, PROCESSES, QWEN3, RECIPES, TASKS, Recipe, TaskChoice

FOLDER = Path(__file__).parent
HEAD = """\
# {title}
# Written by recipes/paper/make.py: change it there. `paper 4.1`: that section states the value. `ours`: the paper is
# silent, this project chose. Not run at full size by this project.
# {command}
"""


Value = tuple[str, Any, str]
"""Key, value, origin."""

NO_THINKING = dict.fromkeys(("attribution", "generation", "judgment", "repair"), False)


def recipe_files() -> dict[str, str]:
    """File name -> content."""
    files = {f"{recipe.name}.yaml": eight_gpus(recipe) for recipe in RECIPES}
    lora = next(recipe for recipe in RECIPES if recipe.policy is QWEN3 and recipe.kind == "math")
    files[f"{lora.name}_one_gpu.yaml"] = one_gpu(lora)
    return files


def eight_gpus(recipe: Recipe) -> str:
    """A recipe for six GPUs that train and two that serve the mentor."""
    title = f"{recipe.policy.repo}, {recipe.kind}: MENTOR's row of {recipe.rows_of}."
    command = (
        f"trl-mentor grpo --config recipes/paper/{recipe.name}.yaml "
        f"--accelerate_config accelerate_configs/{recipe.policy.launch}.yaml --num_processes 6"
    )
    return HEAD.format(title=title, command=command) + body(lines(recipe))


def one_gpu(recipe: Recipe) -> str:
    """The same method with LoRA on one GPU and a hosted mentor."""
    title = f"{recipe.policy.repo}, {recipe.kind}, LoRA on one GPU of 80 GB, hosted mentor. No row of the paper."
    command = (
        f"trl-mentor grpo --config recipes/paper/{recipe.name}_one_gpu.yaml "
        "--accelerate_config accelerate_configs/single_gpu.yaml"
    )
    return HEAD.format(title=title, command=command) + body(one_gpu_lines(recipe))


def body(values: list[Value]) -> str:
    """The lines, each with its origin."""
    return "".join(f"{key}: {shown(value)}  # {origin}\n" for key, value, origin in values)


def shown(value: Any) -> str:
    """A value as YAML that reads back as itself; objects and lists are JSON, which YAML contains."""
    if isinstance(value, float):
        # YAML takes 1e-06 for a text.
        return f"{value:.1e}" if value < 1e-3 and value else str(value)
    return value if isinstance(value, str) and value != "no" else json.dumps(value)


def lines(recipe: Recipe) -> list[Value]:
    """Every line of a recipe for eight GPUs."""
    policy, choice = recipe.policy, TASKS[recipe.kind]
    steps = choice.groups * NUM_GENERATIONS // (PROCESSES * policy.rows)
    split = "10K train" if recipe.kind == "math" else "five sixths of 1,055"
    return [
        ("model_name_or_path", policy.repo, f"paper 4.1{'; ours: ' * bool(policy.note)}{policy.note}"),
        ("task", choice.task, f"paper 4.1: {split}; ours: which rows these are"),
        ("task_max_prompt_chars", choice.prompt_chars, "ours: leaves out what does not fit with a hint"),
        ("reward_funcs", [choice.reward], "paper 3.1: a verifier; ours: no reward for form"),
        ("output_dir", f"outputs/paper/{recipe.name}", "ours"),
        *training_lines(choice, policy.rows, steps),
        *generation_lines(recipe.completion_tokens, choice.prompt_tokens),
        *mentor_lines(recipe, choice),
        ("mentor_base_url", "http://localhost:8000/v1", "ours: where `vllm serve Qwen/Qwen3-32B` listens"),
        ("mentor_thinking", NO_THINKING, "ours: see README.md for what thinking costs"),
    ]


def training_lines(choice: TaskChoice, rows: int, steps: int) -> list[Value]:
    """Batches, optimizer, precision, what is kept."""
    batch = f"{choice.groups} problems a step"
    return [
        ("num_train_epochs", 1, "paper 4.1"),
        ("learning_rate", 1e-6, "paper 4.1"),
        ("num_generations", NUM_GENERATIONS, "paper 4.1"),
        ("per_device_train_batch_size", rows, "ours: what one GPU holds"),
        ("gradient_accumulation_steps", steps, f"ours: {batch}, {choice.problems // choice.groups} steps at most"),
        ("lr_scheduler_type", "constant", "ours"),
        ("warmup_steps", 0, "ours"),
        ("max_grad_norm", 1.0, "ours"),
        ("beta", 0.0, "ours: no KL term, as in TRL by default"),
        ("epsilon", 0.2, "ours: clipping as in TRL by default"),
        ("loss_type", "dapo", "ours: TRL's default; the paper says GRPO and no more"),
        ("scale_rewards", "group", "ours: advantages divided by the group's standard deviation, as in GRPO"),
        ("dtype", "float32", "ours: weights; steps of 1e-6 would be lost in bfloat16"),
        ("bf16", True, "ours: arithmetic"),
        ("seed", 42, "ours: the paper states neither seeds nor repetitions"),
        ("ddp_timeout", 3600, "ours: above mentor_deadline"),
        ("eval_strategy", "no", f"ours: `trl-mentor eval --benchmarks {choice.task}` asks the validation split"),
        ("logging_steps", 1, "ours"),
        ("save_steps", choice.save_steps, "ours"),
        ("save_total_limit", 2, "ours"),
        ("resume_from_checkpoint", "auto", "ours: an interrupted run goes on (docs/resume.md)"),
        ("report_to", "none", "ours: wandb, trackio or tensorboard if you have one"),
    ]


def generation_lines(completion_tokens: int, prompt_tokens: int) -> list[Value]:
    """How the policy samples."""
    return [
        ("max_completion_length", completion_tokens, "ours"),
        ("temperature", 1.0, "ours"),
        ("top_p", 1.0, "ours"),
        ("use_vllm", True, "ours: the paper names no engine"),
        ("vllm_mode", "colocate", "ours"),
        ("vllm_gpu_memory_utilization", 0.3, "ours"),
        ("vllm_enable_sleep_mode", True, "ours: the engine's memory is free while training"),
        (
            "vllm_max_model_length",
            completion_tokens + prompt_tokens,
            "ours: room for question and hint besides",
        ),
    ]


def mentor_lines(recipe: Recipe, choice: TaskChoice) -> list[Value]:
    """The mentor, but for where it is."""
    all_mentored = {"cut_off": "mentor", "format": "mentor", "duplicates": "mentor"}
    return [
        ("mentor_strategy", "mentor", "paper 3"),
        ("mentor_schedule", "inline", "paper 3.3"),
        ("mentor_success_rewards", [choice.reward], "paper 3.1: collapse is zero from the verifier"),
        ("mentor_success_threshold", 0.0, "paper 3.1"),
        (
            "mentor_routes",
            all_mentored,
            "paper 3.1: every collapsed group (docs/causes.md)",
        ),
        ("mentor_max_retry", 2, "paper 4.4.2"),
        ("mentor_max_refine", recipe.max_refine, recipe.refine_origin),
        ("mentor_domain", choice.domain, "ours: our own prompts and leak rules (the paper's are in its appendix A)"),
        ("mentor_model", "Qwen/Qwen3-32B", "paper 4.1"),
        ("mentor_temperature", 0.7, "ours"),
        ("mentor_max_tokens", 2048, "ours"),
        ("mentor_attempt_budget", 12_000, "ours: characters of failed attempts; the paper shows all of them"),
        ("mentor_max_concurrency", 32, "ours: sequences that two GPUs of 80 GB hold as well"),
        ("mentor_call_timeout", 180, "ours"),
        ("mentor_deadline", 900, "ours"),
    ]


def one_gpu_lines(recipe: Recipe) -> list[Value]:
    """LoRA on one GPU of 80 GB with a hosted mentor: not a row of the paper, its method on what many people have."""
    choice = TASKS[recipe.kind]
    kept = {key: (key, value, origin) for key, value, origin in lines(recipe) if key != "mentor_thinking"}
    changed: list[Value] = [
        ("output_dir", f"outputs/paper/{recipe.name}_one_gpu", "ours"),
        ("learning_rate", 1.0e-5, "ours: the paper's 1e-6 is for all weights; adapters need more"),
        ("gradient_accumulation_steps", 24, f"ours: 12 problems a step, {choice.problems // 12} steps at most"),
        ("use_peft", True, "ours: the paper trains all weights, as far as it says"),
        ("lora_r", 32, "ours"),
        ("lora_alpha", 64, "ours"),
        ("lora_dropout", 0.0, "ours: with dropout the policy that trains is not the one that generated"),
        ("lora_target_modules", "all-linear", "ours"),
        (
            "mentor_model",
            "qwen/qwen3-32b",
            "paper 4.1; ours: its name at this endpoint",
        ),
        ("mentor_base_url", "https://openrouter.ai/api/v1", "ours: any OpenAI-compatible endpoint"),
        ("mentor_api_key_env", "OPENROUTER_API_KEY", "ours: the variable that holds the key, never the key"),
        ("mentor_max_tokens", 8192, "ours: hosted models think unless their provider's own switch says otherwise"),
        ("mentor_max_concurrency", 12, "ours: all groups of a step"),
        ("mentor_budget", {"run_calls": 60_000}, "ours: a stop for the bill; see docs/budget.md"),
    ]
    return list((kept | {line[0]: line for line in changed}).values())


if __name__ == "__main__":
    for name, text in recipe_files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")

"""Checks of what mentor and policy are told: prompts of the four agents, the hint in the prompt, and its length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from trl_mentor.assembly import add_hint, question_text
from trl_mentor.cli.check_findings import Finding, Setup, fail, ok, skipped, warn
from trl_mentor.errors import ConfigError
from trl_mentor.guards import TESTS_COLUMN, context_length
from trl_mentor.leaks.hint_rules import HintLimits
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.records import Prompt, Role
from trl_mentor.strategy_settings import READERS
from trl_mentor.templating import PromptTemplates, Slot

_OF_ANSWERS = ("accuracy_reward", "math_reward", "reasoning_accuracy_reward")
"""Rewards that compare mathematics."""


def check_templates(setup: Setup) -> Finding:
    """Do the templates of the domain load, and render on the first rows."""
    training = setup.training
    if not training.asks_mentor():
        return skipped("templates", f"strategy {training.mentor_strategy} asks no mentor")
    fix = "correct the file that the message names; docs/domains.md says what a template may hold"
    try:
        templates = PromptTemplates(training.mentor_domain, training.mentor_templates_dir)
        prompts = [
            sum(len(message["content"]) for message in templates.messages(role, slots))
            for slots in _slots(setup)
            for role in Role
        ]
        hint, template = templates.fallback, training.mentor_hint_template
        hinted = [add_hint(row["prompt"], hint, template) for row in setup.usable_rows]
    except ConfigError as error:
        return fail("templates", str(error), fix)
    found = f"domain {training.mentor_domain!r}: four agents rendered on {len(hinted)} rows"
    if not hinted:
        return ok("templates", f"domain {training.mentor_domain!r} loads; no rows to render it on")
    found += f", longest prompt {max(prompts):,} characters"
    if meant := _other_domain(setup):
        fix = f"set mentor_domain to {meant}: the mentor's prompts and the leak rules follow from it"
        return warn("templates", f"{found}; but what is judged is {meant}", fix)
    return ok("templates", found, longest_prompt_chars=max(prompts))


def _other_domain(setup: Setup) -> str | None:
    """The domain that rows and rewards speak for, if it is not that of the recipe."""
    domain, programs = setup.training.mentor_domain, TESTS_COLUMN in setup.columns
    asked = any(reward.judges_programs for reward in setup.rewards)
    if domain == "math" and programs and (asked or not setup.answer_columns):
        return "code"
    answers = any(reward.name in _OF_ANSWERS for reward in setup.rewards)
    return "math" if domain == "code" and answers and not programs and setup.answer_columns else None


def check_context(setup: Setup) -> Finding:
    """Does a prompt, with a long hint if there are hints, fit into the policy's context; needs its tokenizer here."""
    training, name = setup.training, setup.model.model_name_or_path
    if not setup.usable_rows:
        return skipped("context", "no rows with a usable prompt")
    if not name:
        return fail("context", "no model_name_or_path", "name the policy in the recipe")
    options = {"local_files_only": True, "trust_remote_code": bool(training.trust_remote_code)}
    tokenizer = outcome_of(lambda: AutoTokenizer.from_pretrained(name, **options))
    config = outcome_of(lambda: AutoConfig.from_pretrained(name, **options))
    if isinstance(tokenizer, Exception) or isinstance(config, Exception):
        return skipped("context", f"tokenizer and configuration of {name} are not on this machine")
    limits = [context_length(config.get_text_config()), tokenizer.model_max_length, training.vllm_max_model_length]
    context = min(limit for limit in (*limits, 10**12) if limit)
    room = max(context - training.max_completion_length, 0)
    hint = "word " * HintLimits().max_words
    lengths = outcome_of(lambda: _lengths(tokenizer, setup, hint))
    if isinstance(lengths, Exception):
        fix = "give the tokenizer a chat template that takes these prompts"
        return fail("context", f"the tokenizer of {name} refuses a prompt: {describe(lengths)}", fix)
    plain, hinted = lengths
    with_hint = f", {hinted} with a long hint" if hinted else ""
    found = f"{plain} tokens in the longest prompt{with_hint}, room for {room:,} of {context:,}"
    if plain > room:
        fix = "lower max_completion_length, raise vllm_max_model_length, or drop long prompts"
        return fail("context", found, fix)
    if hinted > room:
        fix = "long hints will be cut or left out; lower max_completion_length or raise vllm_max_model_length"
        return warn("context", found, fix)
    return ok("context", found, longest_prompt_tokens=plain, longest_hinted_tokens=hinted)


def _lengths(tokenizer: Any, setup: Setup, hint: str) -> tuple[int, int]:
    """Tokens of the longest prompt, and of the longest with a hint; 0 where the strategy adds none."""
    prompts = [row["prompt"] for row in setup.usable_rows]
    adds = setup.training.method() in READERS["mentor_hint_template"]
    hinted = [add_hint(prompt, hint, setup.training.mentor_hint_template) for prompt in prompts if adds]
    return max(_tokens(tokenizer, p) for p in prompts), max((_tokens(tokenizer, p) for p in hinted), default=0)


def _tokens(tokenizer: Any, prompt: Prompt) -> int:
    if isinstance(prompt, str):
        return len(tokenizer(prompt)["input_ids"])
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _slots(setup: Setup) -> list[Mapping[str, Slot]]:
    return [
        {
            "question": question_text(row["prompt"]),
            "answer": setup.answer(row),
            "attempts": ("I do not know.",),
            "feedback": ("1 of 2 tests failed",),
            "diagnosis": ("misreads the question",),
            "earlier_hints": ("Begin with what is given.",),
            "draft": "Read the question again.",
            "critique": "Be more specific.",
        }
        for row in setup.usable_rows
    ]

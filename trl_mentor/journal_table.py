"""The journal as a table: one row per intervention, flat enough for pandas."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from datasets import Dataset, Features, Value

from trl_mentor.plain import plain_json
from trl_mentor.records import Guidance, Intervention


def to_dataset(records: Iterable[Intervention], times: Iterable[str]) -> Dataset:
    """The records, each with the time at which it was written; see `JournalRecords.to_dataset`."""
    features = Features(_features())
    rows = [_row(record, time) for record, time in zip(records, times, strict=True)]
    return Dataset.from_dict({name: [row[name] for row in rows] for name in features}, features=features)


def _features() -> dict[str, Any]:
    """Columns and their types, explicit so that an empty journal and mixed prompts have the same ones."""

    def struct(**types: str) -> list[dict[str, Any]]:
        return [{name: Value(kind) for name, kind in types.items()}]

    text, number, count = Value("string"), Value("float64"), Value("int64")
    return {
        "time": text,
        "step": count,
        "collapsed_at": count,
        "index": count,
        "strategy": text,
        "outcome": text,
        "arm": text,
        "topic": text,
        "cause": text,
        "cause_detail": text,
        "origin": text,
        "question": text,
        "answer": text,
        "prompt": text,
        "diagnosis": [text],
        "hint": text,
        "reason": text,
        "attempts": struct(text="string", reward="float64", truncated="bool", feedback="string"),
        "drafts": struct(
            text="string", role="string", attempt="int64", quality="string", critique="string", source="string"
        ),
        "completions": [text],
        "successes": [number],
        "hints": [text],
        "reliances": [number],
        "rewards": [{"name": text, "values": [number]}],
        "calls": struct(
            role="string",
            seconds="float64",
            prompt_tokens="int64",
            completion_tokens="int64",
            cached_tokens="int64",
            thinking_tokens="int64",
            error="string",
            replayed="bool",
            endpoint="string",
        ),
        "mentor_seconds": number,
        "mentor_prompt_tokens": count,
        "mentor_completion_tokens": count,
        "reroll_tokens": count,
    }


def _row(record: Intervention, time: str) -> dict[str, Any]:
    group, prompt = record.group, record.group.prompt
    row = {
        "time": time,
        "step": record.step,
        "collapsed_at": record.collapsed_at,
        "index": group.index,
        "strategy": record.strategy,
        "outcome": record.outcome,
        "arm": record.arm,
        "topic": group.topic,
        "cause": group.cause,
        "cause_detail": group.cause_detail,
        "question": group.question,
        "answer": group.answer,
        "prompt": prompt if isinstance(prompt, str) else json.dumps(plain_json(prompt), ensure_ascii=False),
        "attempts": group.attempts,
        "completions": record.completions,
        "successes": record.successes,
        "hints": record.hints,
        "reliances": record.reliances,
        "rewards": [{"name": name, "values": values} for name, values in record.rewards.items()],
        "reroll_tokens": record.reroll_tokens,
    }
    columns: dict[str, Any] = _arrow_safe(plain_json(row | _guidance_columns(record.guidance)))
    return columns


def _guidance_columns(guidance: Guidance | None) -> dict[str, Any]:
    calls = guidance.calls if guidance else ()
    return {
        "origin": guidance.origin if guidance else None,
        "diagnosis": guidance.diagnosis if guidance else (),
        "hint": guidance.hint if guidance else None,
        "reason": guidance.reason if guidance else None,
        "drafts": [
            {
                "text": draft.text,
                "role": draft.role,
                "attempt": draft.attempt,
                "quality": draft.verdict.quality if draft.verdict else None,
                "critique": draft.verdict.critique if draft.verdict else None,
                "source": draft.verdict.source if draft.verdict else None,
            }
            for draft in (guidance.drafts if guidance else ())
        ],
        "calls": [
            {
                "role": call.role,
                "seconds": call.seconds,
                "prompt_tokens": call.usage.prompt_tokens,
                "completion_tokens": call.usage.completion_tokens,
                "cached_tokens": call.usage.cached_tokens,
                "thinking_tokens": call.usage.thinking_tokens,
                "error": call.error,
                "replayed": call.replayed,
                "endpoint": call.endpoint,
            }
            for call in calls
        ],
        "mentor_seconds": guidance.seconds if guidance else 0.0,
        "mentor_prompt_tokens": sum(call.usage.prompt_tokens for call in calls if not call.replayed),
        "mentor_completion_tokens": sum(call.usage.completion_tokens for call in calls if not call.replayed),
    }


def _arrow_safe(value: Any) -> Any:
    """`value` with every string made valid UTF-8; Arrow refuses lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_arrow_safe(item) for item in value]
    if isinstance(value, dict):
        return {key: _arrow_safe(item) for key, item in value.items()}
    return value

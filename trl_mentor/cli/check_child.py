"""The user's own code, called in a process of its own: reward functions and leak rules are loaded and tried here."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from transformers import TrainerState

from trl_mentor import rewards
from trl_mentor.channel import reports
from trl_mentor.cli.grpo import load_reward
from trl_mentor.errors import ConfigError
from trl_mentor.factory import load_leak_rule
from trl_mentor.mentor_pool import outcome_of
from trl_mentor.plain import plain_json
from trl_mentor.records import Completion, Prompt

_ALREADY_GIVEN = ("prompt", "completion", "completion_ids")
_MAX_ERROR_CHARS = 400


class UserCode:
    """What the child is asked to do; every answer is plain JSON, and every error in it a text."""

    def __init__(self) -> None:
        self._rewards: list[Any] = []

    def load_reward(self, path: str) -> dict[str, Any]:
        """Load one more reward function: its name, the parameters that something must fill, whether it is ours."""
        reward = outcome_of(lambda: load_reward(path))
        if isinstance(reward, ConfigError):
            return {"unknown": str(reward)}
        if isinstance(reward, Exception):
            return {"error": f"importing {path!r} raised {told(reward)}"}
        if not callable(reward):
            return {"unknown": f"{path!r} is {type(reward).__name__}, no function"}
        name = outcome_of(lambda: str(getattr(reward, "__name__", type(reward).__name__)))
        if isinstance(name, Exception):
            return {"error": f"the name of {path!r}, which TRL logs it under, cannot be read: {told(name)}"}
        self._rewards.append(reward)
        return {"name": name, "required": _required(reward), "own": _is_own(reward, name)}

    def score(self, index: int, rows: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> dict[str, Any]:
        """What a loaded reward function says about one text for each row, as TRL would ask it."""
        logged: defaultdict[str, list[Any]] = defaultdict(list)
        arguments = reward_arguments(rows, texts, logged)
        started = time.monotonic()
        returned = outcome_of(lambda: called(self._rewards[index], arguments))
        seconds = time.monotonic() - started
        if isinstance(returned, Exception):
            return {"error": f"raised {told(returned)}"}
        values = outcome_of(lambda: [math.nan if value is None else float(value) for value in returned])
        if isinstance(values, Exception):
            shown = outcome_of(lambda: repr(returned)[:80])
            return {"error": f"returned {shown if isinstance(shown, str) else told(shown)}, not a list of numbers"}
        if len(values) != len(texts):
            return {"error": f"returned {len(values)} values for {len(texts)} completions"}
        reported = outcome_of(lambda: [plain_json(row) for row in _by_row(logged, len(texts))])
        if isinstance(reported, Exception):
            return {"error": f"reported through log_extra what cannot be read: {told(reported)}"}
        return {"values": values, "seconds": seconds, "reported": reported}

    def refusals(self, path: str, cases: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """What a leak rule says about hints, each with its group; or why it cannot be loaded, or fails."""
        rule = outcome_of(lambda: load_leak_rule(path))
        if isinstance(rule, Exception):
            return {"unknown": told(rule)}
        refusals = []
        for hint, group in cases:
            said = outcome_of(lambda hint=hint, group=group: rule(hint, group))  # type: ignore[misc]
            if isinstance(said, Exception):
                return {"error": f"it raised {told(said)}"}
            if said is not None and not (isinstance(said, str) and said.strip()):
                shown = outcome_of(lambda said=said: repr(said)[:60])  # type: ignore[misc]
                return {"error": f"it returned {shown if isinstance(shown, str) else told(shown)}"}
            refusals.append(said)
        return {"refusals": refusals}


def serve(orders: Connection, others: Connection) -> None:
    """Answer orders until the other end is closed. What the user's code prints, to whatever, is dropped."""
    others.close()
    os.setsid()  # so that whatever it starts can be ended with it
    sink = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(sink, descriptor)
    code = UserCode()
    while True:
        try:
            name, arguments = orders.recv()
        except EOFError:
            return
        answer = _last_words(lambda name=name, arguments=arguments: getattr(code, name)(*arguments))  # type: ignore[misc]
        orders.send_bytes(json.dumps(answer).encode())


def told(error: BaseException) -> str:
    """Type and message of an error of the user's code, bounded; its `str` may raise itself."""
    text = outcome_of(lambda: str(error)[:_MAX_ERROR_CHARS])
    return f"{type(error).__name__}: {text if isinstance(text, str) else 'no readable message'}".removesuffix(": ")


def _last_words(job: Callable[[], Any]) -> Any:
    """What the job returns, or what would have ended the training, such as `sys.exit`."""
    try:
        return job()
    except BaseException as error:  # the edge of the process: nobody else could tell
        return {"ended": f"ended its process with {told(error)}"}


def _is_own(reward: Any, name: str) -> bool:
    return name in rewards.__all__ and getattr(rewards, name) is reward


def _required(reward: Any) -> list[str]:
    signature = outcome_of(lambda: inspect.signature(reward))
    if isinstance(signature, Exception):
        return []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    empty = inspect.Parameter.empty
    return [name for name, item in signature.parameters.items() if item.kind in named and item.default is empty]


def completion_for(prompt: Prompt, text: str) -> Completion:
    """A completion in the shape of its prompt."""
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]


def reward_arguments(
    rows: Sequence[Mapping[str, Any]], texts: Sequence[str], logged: defaultdict[str, list[Any]]
) -> dict[str, Any]:
    """What TRL hands to a reward function about one text for each row; what it logs goes to `logged`."""
    prompts = [row["prompt"] for row in rows]
    return {
        "prompts": prompts,
        "completions": [completion_for(p, text) for p, text in zip(prompts, texts, strict=True)],
        # About four characters a token; no reward can expect to know the ids of a policy that is not loaded.
        "completion_ids": [list(range(len(text) // 4 + 1)) for text in texts],
        **{name: [row[name] for row in rows] for name in rows[0] if name not in _ALREADY_GIVEN},
        "trainer_state": TrainerState(),
        "log_extra": lambda column, values: logged[column].extend(values),
        "log_metric": lambda name, value: None,
    }


def _by_row(logged: Mapping[str, Sequence[Any]], rows: int) -> list[dict[str, Any]]:
    fitting: dict[str, Sequence[Any]] = {name: values for name, values in logged.items() if len(values) == rows}
    fitting |= reports(logged, rows)
    return [{name: values[row] for name, values in fitting.items()} for row in range(rows)]


def called(reward: Any, arguments: Mapping[str, Any]) -> Any:
    """What a reward function returns, also one that has to be awaited."""
    returned = reward(**arguments)
    return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned


async def _awaited(value: Any) -> Any:
    return await value

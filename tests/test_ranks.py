"""Shapes of a launch times patterns of collapse, in real processes (gloo): one to four ranks.

Each launch trains every case in sequence, the tests read what its ranks saw. What is expected is worked out here from
the patterns alone.
"""

from __future__ import annotations

import ast
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed_run
import pandas as pd
import pytest
import tiny

from trl_mentor import read_journal
from trl_mentor.records import Cause

PACKAGE = Path(__file__).parent.parent / "trl_mentor"
WORLDS = (1, 2, 3, 4)
OUTCOMES = ("rescued", "hint_saturated", "still_collapsed")
AHEAD = "lessons from the background"
"""Checked by a test of its own, as which lesson takes which place depends on the time that the mentor takes."""


def cases(world: int) -> dict[str, dict[str, Any]]:
    """Trainer settings and patterns of collapse by the name of the case, for a number of ranks."""
    straddling = {
        1: {"per_device_train_batch_size": 12, "num_generations": 6},
        2: {"per_device_train_batch_size": 6},
        3: {"per_device_train_batch_size": 4, "num_generations": 6},
        4: {"per_device_train_batch_size": 1},
    }[world]
    # Which of the groups of a batch collapse: on one rank only, on all, on none.
    anywhere = ["am" * rank + "cc" + "mu" * (world - rank - 1) for rank in range(world)]
    anywhere += ["cn" * world, "ma" * world, "nm" + "um" * (world - 1)]
    one_group_per_rank = ["c" * world, "m" * (world - 1) + "c", "a" * world]
    two_groups_per_rank = ["cn" * world, "u" + "ac" * (world - 1) + "c"]
    return {
        "subsets of ranks": case(anywhere, per_device_train_batch_size=8),
        "groups that straddle ranks": case(straddling_patterns(world), **straddling),
        "batches that are used again": case(
            two_groups_per_rank, reuse=4, steps_per_generation=2, num_iterations=2, gradient_accumulation_steps=1
        ),
        "two batches in a step": case(
            [*one_group_per_rank, "n" * world],
            reuse=2,
            accumulation=4,
            per_device_train_batch_size=2,
            steps_per_generation=2,
            gradient_accumulation_steps=4,
        ),
        "generation_batch_size": case(
            two_groups_per_rank, reuse=4, per_device_train_batch_size=2, generation_batch_size=8 * world
        ),
        "rows left over": case(one_group_per_rank, rows=2 * world + 1),
        "evaluation in between": case(
            one_group_per_rank, eval_strategy="steps", eval_steps=1, per_device_eval_batch_size=4
        ),
        "a stream": case(one_group_per_rank, rows=2 * world + 1, stream=True),
        "conversations": case(one_group_per_rank, conversational=True),
        AHEAD: case(
            [letter * straddling_groups(world) for letter in "cccmcc"],
            mentor_schedule="ahead",
            log_completions=True,
            **straddling,
        ),
    }


def case(patterns: list[str], *, reuse: int = 1, accumulation: int = 1, **options: Any) -> dict[str, Any]:
    """One case; a batch serves `reuse` micro-steps, and `accumulation` micro-steps are one optimizer step."""
    shape = {"per_device_train_batch_size": 4, "num_generations": 4, "rows": 29}
    steps = len(patterns) * reuse // accumulation
    return {"patterns": patterns, "max_steps": steps, **shape, **options}


def straddling_groups(world: int) -> int:
    return {1: 2, 2: 3, 3: 2, 4: 1}[world]


def straddling_patterns(world: int) -> list[str]:
    groups = straddling_groups(world)
    singles = ["m" * group + "c" + "a" * (groups - group - 1) for group in range(groups)]
    return [*singles, "c" * groups, "m" * groups]


NAMES = tuple(name for name in cases(1) if name != AHEAD)


@dataclass(frozen=True)
class Run:
    """A case and what came of it."""

    options: dict[str, Any]
    ranks: list[dict[str, Any]]
    folder: Path

    @property
    def size(self) -> int:
        return self.options["num_generations"]

    @property
    def patterns(self) -> list[str]:
        return self.options["patterns"]

    def collapsed(self, batch: int) -> list[int]:
        return [group for group, letter in enumerate(self.patterns[batch]) if letter in "cn"]

    def outcomes(self, batch: int) -> list[str]:
        return [OUTCOMES[position % len(OUTCOMES)] for position in range(len(self.collapsed(batch)))]

    def step(self, batch: int) -> int:
        """Optimizer steps done when a batch is generated."""
        return batch * self.options["max_steps"] // len(self.patterns)

    def prompt(self, batch: int, group: int) -> int:
        """Index in the data set; what does not fill a batch is left out, and then the data begin anew."""
        groups = len(self.patterns[0])
        per_epoch = self.options["rows"] // groups
        return batch % per_epoch * groups + group

    def calls(self, roll: str, batch: int) -> list[dict[str, Any]]:
        """What the reward function of each rank was given in one roll of a batch, in order of rank."""
        return [
            call for rank in self.ranks for call in rank["calls"] if (call["roll"], call["batch"]) == (roll, batch)
        ]

    def trained(self, name: str, batch: int) -> list[Any]:
        """What the ranks made of a batch, row by row."""
        return [row for rank in self.ranks for row in rank[name][batch]]


@pytest.fixture(scope="module", params=WORLDS)
def launched(request, tmp_path_factory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp(f"world{request.param}")
    options = cases(request.param)
    seen = distributed_run.launch(folder, options, processes=request.param)
    return {name: Run(options[name], seen[name], folder / name / "run") for name in options}


@pytest.fixture(params=NAMES)
def run(launched, request) -> Run:
    return launched[request.param]


def test_the_rows_of_collapsed_groups_and_no_others_are_sampled_under_the_hint(run):
    words = tiny.tokenizer()
    for batch in range(len(run.patterns)):
        for number, (prompt, _) in enumerate(run.trained("batches", batch)):
            group = number // run.size
            text = f"w{run.prompt(batch, group)} w{run.prompt(batch, group)}"
            if group in run.collapsed(batch):
                text = f"Hint: {tiny.HINT}\n\nOriginal question: {text}"
            if run.options.get("conversational"):
                text = f"<system> w20 <eos> <user> {text} <eos> <assistant>"
            assert prompt == words(text)["input_ids"]


def test_each_completion_is_scored_once_and_trained_with_its_own_reward(run):
    for batch, pattern in enumerate(run.patterns):
        first, second = (
            [ids for call in run.calls(roll, batch) for ids in call["ids"]] for roll in ("first", "second")
        )
        collapsed = run.collapsed(batch)
        # Padding rows are scored as well, behind the rows that count.
        expected = {
            group * run.size + member: second[position * run.size + member]
            for position, group in enumerate(collapsed)
            for member in range(run.size)
        }
        rows = run.trained("batches", batch)
        assert len(first) == len(rows) == len(pattern) * run.size
        assert [ids for _, ids in rows] == [expected.get(number, ids) for number, ids in enumerate(first)]
        advantages = [value for group in range(len(pattern)) for value in group_advantages(run, batch, group)]
        assert run.trained("advantages", batch) == pytest.approx(advantages, abs=1e-3)
    rolls = [[call["roll"] for call in rank["calls"] if call["roll"] != "evaluation"] for rank in run.ranks]
    once = [
        roll for batch in range(len(run.patterns)) for roll in ("first", "second")[: 1 + bool(run.collapsed(batch))]
    ]
    assert rolls == [once] * len(run.ranks)


def group_advantages(run: Run, batch: int, group: int) -> list[float]:
    """Those of rewards that alternate between success and failure, or are all alike."""
    rescued = [
        index for index, outcome in zip(run.collapsed(batch), run.outcomes(batch), strict=True) if outcome == "rescued"
    ]
    if group in rescued:
        rewards = [1.0, 0.0] * (run.size // 2)
    elif run.patterns[batch][group] == "m":
        rewards = [0.0, 1.0] * (run.size // 2)
    else:
        return [0.0] * run.size
    mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / deviation for reward in rewards]


def test_rewards_see_the_plain_prompt_and_the_columns_of_their_own_row(run):
    for batch in range(len(run.patterns)):
        rows = [(batch, group) for group in range(len(run.patterns[batch])) for _ in range(run.size)]
        again = [(batch, group) for group in run.collapsed(batch) for _ in range(run.size)]
        for roll, places in (("first", rows), ("second", again)):
            calls = run.calls(roll, batch)
            asked = [prompt for call in calls for prompt in call["prompts"]][: len(places)]
            answers = [answer for call in calls for answer in call["answer"]][: len(places)]
            indices = [run.prompt(*place) for place in places]
            assert answers == [f"answer-{index}" for index in indices]
            if run.options.get("conversational"):
                asked = [prompt[-1]["content"] for prompt in asked]
            assert asked == [f"w{index} w{index}" for index in indices]


def test_the_reroll_is_spread_evenly_wherever_the_collapsed_groups_live(run):
    world = len(run.ranks)
    whole = run.size // math.gcd(run.size, world)
    for batch in range(len(run.patterns)):
        rows = len(run.collapsed(batch)) * run.size
        shares = [len(call["ids"]) for call in run.calls("second", batch)]
        assert len(shares) == (world if rows else 0)
        assert len(set(shares)) <= 1
        assert max(shares, default=0) <= math.ceil(math.ceil(rows / world) / whole) * whole


def test_every_rank_counts_the_same_and_does_every_step(run):
    outcomes = [outcome for batch in range(len(run.patterns)) for outcome in run.outcomes(batch)]
    letters = "".join(run.patterns)
    successes = {"rescued": run.size // 2, "hint_saturated": run.size, "still_collapsed": 0}
    expected = {
        "batches": len(run.patterns),
        "groups": len(letters),
        "collapsed": len(outcomes),
        "all_correct": letters.count("a"),
        "unscorable": letters.count("u"),
        "accepted": len(outcomes),
        "skipped": letters.count("u"),
        "not_asked": letters.count("u"),
        "cause_unscorable": letters.count("u"),
        "reroll_completions": run.size * len(outcomes),
        "reroll_successes": sum(successes[outcome] for outcome in outcomes),
        **{outcome: outcomes.count(outcome) for outcome in OUTCOMES},
    }
    for rank in run.ranks:
        assert rank["steps"] == run.options["max_steps"]
        assert {name: rank["totals"][name] for name in expected} == expected
        assert rank["totals"].keys() == run.ranks[0]["totals"].keys()
        assert rank["totals"]["policy_tokens"] == run.ranks[0]["totals"]["policy_tokens"]
    calls = [sum(role["calls"] for role in rank["totals"]["mentor"]["roles"].values()) for rank in run.ranks]
    assert calls == [3 * len(outcomes)] + [0] * (len(run.ranks) - 1)  # the main process alone knows


def test_the_journal_holds_each_intervention_once_with_its_step_and_place(run):
    scorable = {"c": run.size, "n": run.size // 2}
    expected = [
        (run.step(batch), group, outcome, f"answer-{run.prompt(batch, group)}", scorable[run.patterns[batch][group]])
        for batch in range(len(run.patterns))
        for group, outcome in zip(run.collapsed(batch), run.outcomes(batch), strict=True)
    ]
    records = read_journal(run.folder)
    selected = [item for item in records if item.group.cause is not Cause.UNSCORABLE]
    assert [
        (item.step, item.group.index, item.outcome.value, item.group.answer, len(item.group.attempts))
        for item in selected
    ] == expected
    assert {len(item.completions) for item in selected} == {run.size}
    left = [item for item in records if item.group.cause is Cause.UNSCORABLE]
    assert [(item.step, item.group.index, item.outcome.value, len(item.group.attempts)) for item in left] == [
        (run.step(batch), group, "skipped", run.size)
        for batch, pattern in enumerate(run.patterns)
        for group, letter in enumerate(pattern)
        if letter == "u"
    ]


def test_metrics_are_logged_for_the_steps_that_generate(run):
    by_step: dict[int, list[int]] = {}
    for batch in range(len(run.patterns)):
        by_step.setdefault(run.step(batch) + 1, []).append(batch)
    logs = {entry["step"]: entry for entry in run.ranks[0]["log"] if "loss" in entry}
    assert [step for step, entry in logs.items() if "mentor/frac_collapsed" in entry] == list(by_step)
    for step, batches in by_step.items():
        shares = [len(run.collapsed(batch)) / len(run.patterns[batch]) for batch in batches]
        rescued = [run.outcomes(batch).count("rescued") / len(run.patterns[batch]) for batch in batches]
        assert logs[step]["mentor/frac_collapsed"] == pytest.approx(statistics.fmean(shares))
        assert logs[step]["mentor/frac_rescued"] == pytest.approx(statistics.fmean(rescued))
    assert all(math.isfinite(entry["loss"]) for entry in logs.values())


def test_the_mentor_is_asked_on_the_main_rank_once_for_each_collapsed_group(run):
    groups = sum(len(run.collapsed(batch)) for batch in range(len(run.patterns)))
    once = {"attribution": groups, "generation": groups, "judgment": groups}
    assert [rank["asked"] for rank in run.ranks] == [once] + [{}] * (len(run.ranks) - 1)


def test_evaluation_between_steps_is_scored_and_never_mentored(launched):
    run = launched["evaluation in between"]
    logs = [entry for entry in run.ranks[0]["log"] if "eval_reward" in entry]
    assert [entry["step"] for entry in logs] == [1, 2, 3]
    assert not [name for entry in logs for name in entry if "mentor" in name]
    for batch in range(len(run.patterns)):
        answers = [answer for call in run.calls("evaluation", batch) for answer in call["answer"]]
        assert {f"answer-{index}" for index in range(3)} == set(answers)
        assert len(answers) == math.ceil(12 / (4 * len(run.ranks))) * 4 * len(run.ranks)


def test_lessons_from_the_background_take_whole_places_with_their_own_question(launched):
    run, words = launched[AHEAD], tiny.tokenizer()
    journal = read_journal(run.folder)
    used = [item for item in journal if item.completions]
    for batch, pattern in enumerate(run.patterns):
        lessons = [item for item in used if item.step == batch]
        places = run.collapsed(batch)[: len(lessons)]
        second = [row for call in run.calls("second", batch) for row in zip(call["answer"], call["ids"], strict=True)]
        second = second[: len(places) * run.size]
        questions = [f"answer-{run.prompt(batch, group)}" for group in range(len(pattern)) for _ in range(run.size)]
        sampled = [ids for call in run.calls("first", batch) for ids in call["ids"]]
        for position, group in enumerate(places):
            of_lesson = second[position * run.size : (position + 1) * run.size]
            here = slice(group * run.size, (group + 1) * run.size)
            questions[here] = [answer for answer, _ in of_lesson]
            sampled[here] = [ids for _, ids in of_lesson]
            assert len(set(questions[here])) == 1
        plain = [answer.replace("answer-", "w") for answer in questions]
        hinted = [number // run.size in places for number in range(len(questions))]
        texts = [
            f"Hint: {tiny.HINT}\n\nOriginal question: " * hint + f"{w} {w}"
            for hint, w in zip(hinted, plain, strict=True)
        ]
        assert run.trained("batches", batch) == [
            [words(text)["input_ids"], ids] for text, ids in zip(texts, sampled, strict=True)
        ]
        assert sorted(item.group.answer for item in lessons) == sorted({answer for answer, _ in second})
        table = pd.read_parquet(run.folder / "completions" / f"completions_{batch + 1:05d}.parquet")
        assert table["prompt"].tolist() == [f"{w} {w}" for w in plain]
        assert [bool(hint) for hint in table["mentor/hint"]] == hinted
    collapsed = sum(map(len, map(run.collapsed, range(len(run.patterns)))))
    staleness = [item.step - item.collapsed_at for item in used]
    assert min(staleness) >= 1
    for rank in run.ranks:
        totals = rank["totals"]
        assert rank["steps"] == len(run.patterns)
        assert (totals["collapsed"], totals["handed_over"]) == (collapsed, collapsed)
        assert (totals["lessons"], totals["staleness"]) == (len(used), sum(staleness))


COLLECTIVES = {
    "gather",
    "gather_for_metrics",
    "gather_object",
    "broadcast",
    "broadcast_object_list",
    "reduce",
    "barrier",
    "wait_for_everyone",
    "pad_across_processes",
    "main_process_first",
    "local_main_process_first",
}
PREFIXES = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter", "scatter_object")


def collectives(source: str) -> list[str]:
    """Calls of collectives in a module, except through an `exchange`; and imports of torch.distributed's functions."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            owner, _, name = ast.unparse(node.func).rpartition(".")
            collective = name in COLLECTIVES or name.startswith(PREFIXES)
            if collective and owner.rpartition(".")[2].lstrip("_") not in {"exchange", "asyncio"}:
                found.append(ast.unparse(node.func))
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("torch.distributed")]
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            if node.module in {"torch.distributed", "torch.distributed.nn"} or "torch.distributed" in names:
                found.append(ast.unparse(node))
    return found


def test_only_the_exchange_calls_collectives_once_the_data_is_loaded():
    found = {
        path.relative_to(PACKAGE).as_posix(): names
        for path in sorted(PACKAGE.rglob("*.py"))
        if (names := collectives(path.read_text(encoding="utf-8")))
    }
    # The data of each machine, before there is a trainer.
    assert found.pop("cli/grpo.py") == ["training.main_process_first"]
    assert list(found) == ["exchange.py"]


@pytest.mark.parametrize(
    "source",
    [
        "self.accelerator.gather(rewards)",
        "from accelerate.utils import gather_object\ngather_object(rows)",
        "dist.all_gather_into_tensor(a, b)",
        "accelerator.wait_for_everyone()",
        "import torch.distributed as dist",
        "from torch import distributed",
        "from torch.distributed import barrier",
        "with accelerator.main_process_first(): pass",
    ],
)
def test_the_check_for_collectives_finds_a_planted_one(source):
    assert collectives(source)


@pytest.mark.parametrize("source", ["self._exchange.gather(members)", "await asyncio.gather(*others)"])
def test_the_check_for_collectives_lets_the_exchange_pass(source):
    assert collectives(source) == []

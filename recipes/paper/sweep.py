"""The trainings and evaluations behind the paper's Tables 1 to 4 and its Figure 4, one command for each row.

python recipes/paper/sweep.py --dry-run                       every training, as a command to type
python recipes/paper/sweep.py table4 --dry-run                those of one table
python recipes/paper/sweep.py table4                          runs them in turn, without those that are finished
python recipes/paper/sweep.py table4 --evaluate --dry-run     the evaluations instead
python recipes/paper/sweep.py table4 -- --report_to wandb     words after -- go to each command

A training that was interrupted goes on where its last checkpoint is. Finished is what has saved its model, also if
words after -- cut it short: delete its folder to train it in full.

Run it from the root of the repository, with the mentor's server up (see recipes/paper/README.md).
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from table import PROCESSES, QWEN3, RECIPES, Recipe

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("table1", "table2", "table3", "table4", "figure4", "controls")
NOT_BUILT = ("DAPO", "Critique-GRPO", "SRPO", "LUFFY", "QuestA", "HINT", "Scaf-GRPO")
"""Rivals of the paper's tables that this package does not have yet."""

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
GRPO = (("mentor_strategy", "none"),)
RESAMPLE = (("mentor_strategy", "resample"),)
ABLATIONS = {
    "without attribution": "no_attribution",
    "without generation": "no_generation",
    "without judgment and repair": "no_judge",
}
BENCHMARKS = {"math": "aime24,aime25,math500,gaokao-bench,olympiadbench", "code": "humaneval,mbpp,bigcodebench"}
FILES = {"math": ("--files", "gaokao-bench=data/gaokao-bench"), "code": ()}
"""GAOKAO-Bench is not on the Hub: see docs/benchmarks.md for the two files to fetch."""

OUT_OF_DISTRIBUTION = "mmlu"
"""Table 1 shows it beside the average, not in it, so it is an evaluation of its own."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, or one point of a figure; rows that are the same training share its output."""

    place: str
    label: str
    recipe: Recipe
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def output_dir(self) -> str:
        """The recipe's own for the recipe as it is, else one that names what differs."""
        parts = [self.recipe.name, *(f"{name.removeprefix('mentor_')}={value}" for name, value in self.settings)]
        return f"outputs/paper/{'-'.join(parts)}"

    def training(self) -> list[str]:
        """The command that trains it on six GPUs."""
        recipe = self.recipe
        changes = [("output_dir", self.output_dir), *self.settings] if self.settings else []
        return [
            *("trl-mentor", "grpo", "--config", f"recipes/paper/{recipe.name}.yaml"),
            *("--accelerate_config", f"accelerate_configs/{recipe.policy.launch}.yaml"),
            *("--num_processes", str(PROCESSES)),
            *(word for name, value in changes for word in (f"--{name}", value)),
        ]


def rows() -> list[Row]:
    """Every row that this package can make, in the paper's order."""
    found = [*table("table1", "math"), *table("table2", "code")]
    qwen = next(recipe for recipe in RECIPES if recipe.policy is QWEN3 and recipe.kind == "math")
    found += [Row("table3", "Qwen3-4B, MENTOR", qwen), Row("table3", "Qwen3-4B, GRPO", qwen, GRPO)]
    found.append(Row("table4", "Qwen3-4B, MENTOR", qwen))
    found += [Row("table4", label, qwen, (("mentor_ablation", name),)) for label, name in ABLATIONS.items()]
    found += [row for recipe in figure_recipes() for row in points(recipe)]
    return found + [Row("controls", f"{title(recipe)}, resample", recipe, RESAMPLE) for recipe in RECIPES]


def table(place: str, kind: str) -> list[Row]:
    """MENTOR and GRPO for each model of Table 1 (math) or 2 (code)."""
    recipes = [recipe for recipe in RECIPES if recipe.kind == kind]
    mentor = [Row(place, f"{title(recipe)}, MENTOR", recipe) for recipe in recipes]
    return mentor + [Row(place, f"{title(recipe)}, GRPO", recipe, GRPO) for recipe in recipes]


def figure_recipes() -> list[Recipe]:
    """The models that the paper's text on Figure 4 names, on both tasks."""
    return [recipe for recipe in RECIPES if "Figure 4" in recipe.rows_of]


def points(recipe: Recipe) -> list[Row]:
    """One setting of Figure 4 varied, the other as in the recipe."""
    found = []
    for name, best in (("mentor_max_retry", 2), ("mentor_max_refine", recipe.max_refine)):
        for value in (1, 2, 3):
            settings = () if value == best else ((name, str(value)),)
            found.append(Row("figure4", f"{title(recipe)} {recipe.kind}, {name} {value}", recipe, settings))
    return found


def title(recipe: Recipe) -> str:
    """The model without its publisher."""
    return recipe.policy.repo.partition("/")[2]


def evaluations(chosen: list[Row]) -> list[list[str]]:
    """What the untrained and the trained models of these rows are evaluated by, no command twice."""
    found: dict[str, list[str]] = {}
    for row in chosen:
        recipe, base = row.recipe, f"outputs/paper/base-{row.recipe.policy.stem}"
        for label, words in evaluation(recipe).items():
            untrained = [*words, "--model", recipe.policy.repo, "--output", f"{base}/{label}"]
            trained = [*words, "--model", row.output_dir, "--output", f"{row.output_dir}/eval-{label}"]
            for command in (untrained, [*trained, "--base", f"{base}/{label}"]):
                found[shlex.join(command)] = command
    return list(found.values())


def evaluation(recipe: Recipe) -> dict[str, list[str]]:
    """The commands by what they ask, without the model. The paper states no decoding: that is ours."""
    length = ["--max-new-tokens", str(recipe.completion_tokens)]
    sampled = ["--num-samples", "16", "--temperature", "0.6", "--top-p", "0.95", *length]
    greedy = ["--num-samples", "1", "--temperature", "0", *length]
    start = ["trl-mentor", "eval", "--benchmarks"]
    found = {recipe.kind: [*start, BENCHMARKS[recipe.kind], *FILES[recipe.kind], *sampled]}
    return found | ({"mmlu": [*start, OUT_OF_DISTRIBUTION, *greedy]} if recipe.kind == "math" else {})


def finished(row: Row) -> bool:
    """Whether the training got as far as saving its model."""
    return any((ROOT / row.output_dir / name).is_file() for name in WEIGHTS)


def carry_out(words: list[str], *, dry_run: bool) -> int:
    """Print a command and, unless that is all that is wanted, run it; returns its exit code."""
    print(shlex.join(words), flush=True)
    return 0 if dry_run else subprocess.run(words, cwd=ROOT).returncode


def main(argv: list[str]) -> int:
    """Print or run the commands; the exit code is that of the first one that fails."""
    own, further = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", metavar="place", help=f"some of {', '.join(PLACES)} (default: all)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    parser.add_argument("--evaluate", action="store_true", help="the evaluations instead of the trainings")
    given = parser.parse_args(own)
    if unknown := set(given.places) - set(PLACES):
        parser.error(f"unknown place {', '.join(sorted(unknown))}; choose from {', '.join(PLACES)}")
    chosen = [row for row in rows() if row.place in (given.places or PLACES)]
    if given.evaluate:
        codes = (carry_out([*words, *further], dry_run=given.dry_run) for words in evaluations(chosen))
        return next(filter(None, codes), 0)
    if {"table1", "table2"} & {row.place for row in chosen}:
        print(f"# Rows that this package cannot make yet: {', '.join(NOT_BUILT)}.")
    for row in chosen:
        skip = not given.dry_run and finished(row)
        print(f"# {row.place}: {row.label}" + f" (finished: {row.output_dir})" * skip)
        if not skip and (code := carry_out([*row.training(), *further], dry_run=given.dry_run)):
            return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

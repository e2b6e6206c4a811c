"""Strategies for collapsed groups at an equal number of generated tokens, on tiny synthetic worlds.

    python benchmarks/compare_strategies.py --output outputs/strategies
    python benchmarks/compare_strategies.py --output outputs/strategies --only 'code.mentor*' 'code.none'
    python benchmarks/compare_strategies.py --output outputs/quick --quick

Every run goes through the shipped `MentorGRPOTrainer` and ends when the policy has generated its number of tokens,
second rolls included; what the mentor read and wrote is booked apart. A run is one JSON file in `--output`: one that
is there is not repeated, so that an interrupted comparison goes on where it stopped. Students are pretrained once for
each recipe and seed and kept in `--students`. Held-out problems are evaluated without hints.

    strategy_worlds.py       the worlds: domain, habits of the student, what it must be like at the start
    strategy_arithmetic.py   the arithmetic world
    strategy_students.py     pretraining, the store of checkpoints, what a student is like before training
    strategy_tutors.py       the tutor: right, generic, shuffled, misleading, leaking
    strategy_specs.py        the methods, and what makes a run the same run
    strategy_rates.py        the choice of the learning rate of each method, on seeds of its own
    strategy_run.py          one run
    strategy_tables.py       table and figure

The misconceptions of the students are planted: figures from here show mechanisms and say nothing about LLMs. To add a
method, add it to `METHODS`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from strategy_rates import choose_rates, tuning_specs
from strategy_run import PROBLEM_SEED, run_once
from strategy_specs import FULL, METHODS, QUICK, Size, Spec, read_result
from strategy_students import make_student, measure_start
from strategy_tables import figure, grid, markdown, rows
from strategy_worlds import WORLDS
from tqdm import tqdm

LEARNING_RATES = (2.5e-4, 5e-4, 1e-3)
SEEDS, STUDENTS = 5, 3
HERE = Path(__file__).parent
MARKS = ("<!-- strategies: begin -->", "<!-- strategies: end -->")


def chosen(only: Sequence[str]) -> list[tuple[str, str]]:
    """Worlds and their methods; `only` are patterns of `<world>.<method>`."""
    return [
        (world, method)
        for world in WORLDS
        for method in METHODS
        if not only or any(fnmatchcase(f"{world}.{method}", pattern) for pattern in only)
    ]


def missing(wanted: Sequence[Spec], output: Path) -> list[Spec]:
    """The runs without a whole result."""
    return [spec for spec in wanted if read_result(output, spec) is None]


def start_figures(world: str, student: int, size: Size, students: Path) -> dict[str, Any]:
    """What one student is like before training, and what of its world's claims it does not show."""
    place = make_student(students, WORLDS[world], seed=student, steps=size.pretraining_steps)
    start = measure_start(WORLDS[world], place, per_family=size.held_out_per_family, seed=PROBLEM_SEED)
    return {"world": world, "pretraining_seed": student, **asdict(start), "breaches": start.breaches(WORLDS[world])}


def quieten() -> None:
    """One thread a process, and no output of the libraries."""
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    for name in ("trl", "accelerate", "trl_mentor"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore", FutureWarning)


@contextmanager
def workers(processes: int) -> Iterator[Executor | None]:
    """A pool of processes, or None where one process is enough and this one will do."""
    if processes == 1:
        yield None
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=quieten) as pool:
        yield pool


def do(pool: Executor | None, jobs: Sequence[Callable[[], Any]], title: str) -> list[Any]:
    """The results of all jobs, in their order; the first error is raised when the other jobs are done."""
    if pool is None:
        return [job() for job in tqdm(jobs, desc=title)]
    futures = [pool.submit(job) for job in jobs]
    for _ in tqdm(as_completed(futures), total=len(futures), desc=title):
        pass
    return [future.result() for future in futures]


def publish(tables: str, picture: bytes, *, folder: Path) -> None:
    """Put the tables of a full comparison between the marks of the README in `folder`, and its figure beside it."""
    readme, image = folder / "README.md", Path("results", "strategies.png")
    text = readme.read_text(encoding="utf-8") if readme.exists() else "# Benchmarks\n\n" + "\n".join(MARKS) + "\n"
    before, _, rest = text.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    said = (
        "Synthetic worlds with planted misconceptions: mechanisms, not evidence about LLMs. "
        "`python benchmarks/compare_strategies.py`; accuracy on held-out problems without hints.\n\n"
        f"![accuracy over generated tokens]({image.as_posix()})\n\n{tables}"
    )
    (folder / image).write_bytes(picture)
    readme.write_text(f"{before}{MARKS[0]}\n{said}{MARKS[1]}{after}", encoding="utf-8")


def start_table(starts: Sequence[dict[str, Any]]) -> str:
    """What the students are like before training."""
    lines = [
        "| world | student | right without a hint (one concept) | right without (all) | right under the right hint "
        "| hint quoted | groups collapsed |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {s['world']} | {s['pretraining_seed']} | {s['unhinted']:.1e} | {s['plain']:.3f} | {s['hinted']:.3f} "
        f"| {s['quoted']:.2f} | {s['collapsed']:.3f} |"
        for s in starts
    ]
    return "\n".join(lines) + "\n"


def finish(
    wanted: Sequence[Spec], output: Path, store: Path, pool: Executor | None, title: str
) -> list[dict[str, Any]]:
    """The results of all these runs, in their order, of which only those are trained that are not there yet."""
    todo = missing(wanted, output)
    print(f"{title}: {len(wanted) - len(todo)} of {len(wanted)} are there", flush=True)
    do(pool, [partial(run_once, spec, output, store) for spec in todo], title)
    return [result for spec in wanted if (result := read_result(output, spec)) is not None]


def compare(given: argparse.Namespace) -> int:
    """Run what is missing, then print the tables; a full comparison is also published."""
    size = QUICK if given.quick else replace(FULL, tokens=given.tokens, pretraining_steps=given.pretraining_steps)
    seeds, students = (1, 1) if given.quick else (given.seeds, given.pretraining_seeds)
    rates = given.learning_rates[:1] if given.quick else given.learning_rates
    only = given.only or (["code.*"] if given.quick else [])
    pairs = chosen(only)
    if not pairs:
        print(f"no run matches {only}; worlds: {', '.join(WORLDS)}; methods: {', '.join(METHODS)}", file=sys.stderr)
        return 2
    store = given.students or given.output / "students"
    begun = list(dict.fromkeys((world, student) for world, _ in pairs for student in range(students)))
    with workers(given.processes) as pool:
        starts = do(pool, [partial(start_figures, *pair, size, store) for pair in begun], "students")
        by_method = {method: rates[0] for _, method in pairs}
        if len(rates) > 1:
            tuning = finish(tuning_specs(pairs, rates, size), given.output, store, pool, "runs that choose rates")
            by_method = choose_rates(tuning)
        wanted = [
            Spec(world, method, student, seed, by_method[method], size)
            for world, method in pairs
            for student in range(students)
            for seed in range(seeds)
        ]
        results = finish(wanted, given.output, store, pool, "runs")
    found = rows(results)
    used = "Learning rates: " + ", ".join(f"{method} {rate:g}" for method, rate in by_method.items()) + ".\n"
    tables, picture = f"{start_table(starts)}\n{markdown(found)}\n{used}", figure(found, grid(results))
    print(tables)
    for breach in (breach for start in starts for breach in start["breaches"]):
        print(f"not what the world claims: {breach}")
    (given.output / "table.md").write_text(tables, encoding="utf-8")
    (given.output / "figure.png").write_bytes(picture)
    (given.output / "starts.json").write_text(json.dumps(starts, indent=1) + "\n", encoding="utf-8")
    if not only and size == FULL and seeds >= SEEDS and students >= STUDENTS and len(rates) > 1:
        publish(tables, picture, folder=HERE)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder of the results")
    parser.add_argument("--students", type=Path, default=None, help="folder of the checkpoints (default: in --output)")
    parser.add_argument("--only", nargs="+", default=None, metavar="WORLD.METHOD", help="patterns of what to run")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--pretraining-seeds", type=int, default=STUDENTS)
    parser.add_argument("--tokens", type=int, default=FULL.tokens)
    parser.add_argument("--pretraining-steps", type=int, default=FULL.pretraining_steps)
    parser.add_argument(
        "--learning-rates",
        type=float,
        nargs="+",
        default=LEARNING_RATES,
        metavar="RATE",
        help="one for all methods, or several of which each method gets its best, chosen on seeds of their own",
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="one tiny run of each method: a test, no comparison")
    os.environ["OMP_NUM_THREADS"] = "1"
    return compare(parser.parse_args(arguments))


if __name__ == "__main__":
    quieten()
    sys.exit(main())

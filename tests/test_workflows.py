"""The hosted workflows run the commands of this repository and none of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def commands(workflow: dict) -> list[str]:
    """Every `run` of a workflow; one that is a value of the job's matrix counts once per value."""
    found = []
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            variable = re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", step.get("run", ""))
            if variable:
                found += matrix[variable[1]]
            elif "run" in step:
                found.append(step["run"])
    return found


def load(name: str) -> dict:
    return yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))


def unknown(wanted: list[str]) -> list[str]:
    """Commands that are neither `.ci/run` nor `make` with one target of the Makefile and perhaps a variable."""
    known = rf"\.ci/run|make ({'|'.join(TARGETS)})( [A-Z]+=\S+)?"
    return [command for command in wanted if not re.fullmatch(known, command)]


@pytest.mark.parametrize("name", [path.name for path in sorted(WORKFLOWS.iterdir())])
def test_every_command_of_a_workflow_is_a_make_target_or_ci_run(name):
    assert commands(load(name))
    assert unknown(commands(load(name))) == []


def test_a_command_that_a_contributor_cannot_run_by_make_is_found():
    workflow = {
        "jobs": {
            "a": {"strategy": {"matrix": {"c": ["make test", "make tset"]}}, "steps": [{"run": "${{ matrix.c }}"}]},
            "b": {"steps": [{"uses": "x"}, {"run": ".ci/run"}, {"run": "pip install trl && make test"}]},
        }
    }
    assert unknown(commands(workflow)) == ["make tset", "pip install trl && make test"]


def test_the_hosted_ci_runs_what_ci_run_does_and_the_oldest_trl():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    # What ends in `&` only installs, while the rest goes on.
    local = {line for line in lines if line.startswith("make ") and not line.endswith("&")}
    assert set(commands(load("ci.yml"))) == local | {"make test-oldest"}


def test_the_newest_trl_is_tried_every_week_and_its_tests_run_whatever_its_changes_say():
    workflow = load("newest-trl.yml")
    triggers = workflow[True]  # YAML 1.1 reads the key `on` as a truth value
    assert [len(item["cron"].split()) for item in triggers["schedule"]] == [5]
    assert commands(workflow) == ["make trl-changes", "make test-newest"]
    assert workflow["jobs"]["newest-trl"]["steps"][-1]["if"] == "${{ !cancelled() }}"

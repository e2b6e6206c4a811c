"""The example of docs/domains.md: its own files, through the mentor, the reward and `trl-mentor check`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import said
import yaml
from test_check import Endpoint, endpoint  # noqa: F401  # a fixture

from trl_mentor import Mentor, ScriptedBackend
from trl_mentor.cli.grpo import load_reward
from trl_mentor.cli.main import main
from trl_mentor.factory import load_leak_rule
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin, Role, VerdictSource

ROOT = Path(__file__).parents[1]
EXAMPLE = "docs/examples/own_domain"
LEAKY = "Customers without a partner survive a left join orders on the right key."
GOOD = "What does a row look like for a customer who has nothing to be matched with?"


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture
def recipe() -> dict[str, Any]:
    return yaml.safe_load(Path(EXAMPLE, "grpo.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(EXAMPLE, "data", "train.jsonl").read_text().splitlines()]


@pytest.fixture
def group(rows) -> CollapsedGroup:
    row = rows[0]
    feedback = scored(["SELECT nme FROM customers"], row)[1]
    attempt = Attempt("SELECT nme FROM customers", 0.0, feedback=feedback[0])
    return CollapsedGroup(row["prompt"][0]["content"], (attempt,), row["answer"], prompt=row["prompt"])


def scripted() -> ScriptedBackend:
    return ScriptedBackend(
        {
            Role.ATTRIBUTION: said.diagnosis("forgets rows without a partner"),
            Role.GENERATION: LEAKY,
            Role.JUDGMENT: said.verdict("HIGH"),
            Role.REPAIR: said.repaired(GOOD),
        }
    )


def mentor(backend: ScriptedBackend, recipe: dict[str, Any], **changes: Any) -> Mentor:
    rule = load_leak_rule(recipe["mentor_leak_rule"])
    options = {"domain": recipe["mentor_domain"], "templates_dir": recipe["mentor_templates_dir"], "leak_rule": rule}
    return Mentor(backend, **{**options, **changes})


def scored(texts: list[str], row: dict[str, Any]) -> tuple[list[float], list[str | None]]:
    """Rewards of these texts for a row, and what was reported for the mentor."""
    logged: dict[str, list[str | None]] = {}
    reward = load_reward(f"{EXAMPLE.replace('/', '.')}.rewards.query_result")
    rewards = reward(
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        tables=[row["tables"]] * len(texts),
        answer=[row["answer"]] * len(texts),
        log_extra=logged.__setitem__,
    )
    return rewards, logged["mentor/feedback"]


def prompt(backend: ScriptedBackend, role: Role) -> tuple[str, str]:
    """System and user message of the first request for a role."""
    request = next(request for request in backend.requests if request.role is role)
    return request.messages[0]["content"], request.messages[1]["content"]


# Through the mentor


def test_its_leak_rule_refuses_a_draft_before_the_judge_sees_it(recipe, group):
    backend = scripted()
    (guidance,) = mentor(backend, recipe).guide([group])
    leaky, repaired = guidance.drafts
    assert leaky.verdict.source is VerdictSource.RULES
    assert leaky.verdict.critique.startswith("The hint repeats a part of the reference query")
    assert (guidance.origin, guidance.hint) == (HintOrigin.ACCEPTED, GOOD)
    assert repaired.verdict.source is VerdictSource.JUDGE
    assert [request.role for request in backend.requests].count(Role.JUDGMENT) == 1
    assert LEAKY not in prompt(backend, Role.JUDGMENT)[1]


def test_without_its_leak_rule_the_draft_would_have_passed(recipe, group):
    (guidance,) = mentor(scripted(), recipe, leak_rule=None).guide([group])
    assert guidance.hint == LEAKY


def test_all_four_agents_are_asked_with_its_templates(recipe, group):
    backend = scripted()
    mentor(backend, recipe).guide([group])
    for role in Role:
        system, user = prompt(backend, role)
        assert "a database instructor" in system
        assert "SQL exercise" in system
        assert "SQL" in user
    assert "a comparison with NULL" in prompt(backend, Role.ATTRIBUTION)[1]
    assert len({prompt(backend, role)[0] for role in Role}) == 1  # so that a prefix cache serves all four


def test_what_its_reward_reports_reaches_the_diagnosis_alone(recipe, group):
    backend = scripted()
    mentor(backend, recipe).guide([group])
    assert "the query failed: no such column: nme" in prompt(backend, Role.ATTRIBUTION)[1]
    for role in (Role.GENERATION, Role.JUDGMENT, Role.REPAIR):
        assert "no such column" not in prompt(backend, role)[1]


def test_its_fixed_hint_is_the_fallback_and_passes_its_own_leak_rule(recipe, group):
    backend = ScriptedBackend(
        {
            Role.ATTRIBUTION: said.diagnosis("forgets rows without a partner"),
            Role.GENERATION: LEAKY,
            Role.REPAIR: said.repaired(LEAKY),
        }
    )
    (guidance,) = mentor(backend, recipe).guide([group])
    assert guidance.origin is HintOrigin.FALLBACK
    assert guidance.hint.startswith("Say in your own words what one row of the result stands for.")
    assert load_leak_rule(recipe["mentor_leak_rule"])(guidance.hint, group) is None


@pytest.mark.parametrize(
    ("hint", "refused"),
    [
        ("Use SELECT name FROM the table of customers.", True),
        ("Try GROUP BY class.", True),
        ("Use select name, id from pupils.", True),
        ("Keep the rows where orders.id IS NULL.", True),
        ("Select the columns you need, and think about where they come from.", False),
        ("Which rows of the first table have no partner in the second?", False),
        ("A comparison with a missing value is neither true nor false.", False),
    ],
)
def test_its_leak_rule_knows_sql_from_words(recipe, group, hint, refused):
    rule = load_leak_rule(recipe["mentor_leak_rule"])
    if "IS NULL" in hint:
        group = replace(group, answer="SELECT name FROM customers JOIN orders WHERE orders.id IS NULL")
    assert (rule(hint, group) is not None) == refused


# Its reward


def test_its_reward_runs_the_query_and_says_what_failed(rows):
    row = rows[0]
    fenced = f"So:\n```sql\n{row['answer']}\n```"
    same = "SELECT name FROM customers WHERE id NOT IN (SELECT customer FROM orders)"
    rewards, feedback = scored([fenced, same, "SELECT name FROM customers", "It cannot be done."], row)
    assert rewards == [1.0, 1.0, 0.0, 0.0]
    assert feedback[:2] == [None, None]
    assert feedback[2] == "the query returned 3 rows: [('Ada',), ('Ben',), ('Cleo',)]"
    assert feedback[3].startswith("the query failed: ")


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM orders",
        "ATTACH 'stolen.db' AS other",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
        "SELECT 1; SELECT 2",
        "SELECT '\x00'",
    ],
)
def test_a_query_that_writes_or_never_ends_is_only_wrong(rows, query, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rewards, feedback = scored([query], rows[0])
    assert rewards == [0.0]
    assert feedback[0]
    assert list(tmp_path.iterdir()) == []


# The whole


def test_the_example_passes_the_check(recipe, endpoint: Endpoint, capsys):  # noqa: F811
    words = ["--config", f"{EXAMPLE}/grpo.yaml", "--mentor_base_url", endpoint.url, "--mentor_model", "mentor"]
    assert main(["check", *words, "--json"]) == 0
    found = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert found["reward"]["level"] == "ok"
    assert "'sql'" in found["templates"]["found"]
    assert found["leak rule"]["level"] == "ok"


def test_the_page_shows_the_files_as_they_are():
    page = Path("docs/domains.md").read_text(encoding="utf-8")
    shown = re.findall(r"`(docs/examples/own_domain/[\w/.]+)`:\n\n```\w*\n(.*?)```", page, re.DOTALL)
    assert len(shown) >= 3
    for file, text in shown:
        assert text.strip() in Path(file).read_text(encoding="utf-8"), file

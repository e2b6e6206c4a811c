"""Promises that the repository makes about itself."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from trl_mentor.counters import Counters
from trl_mentor.metrics import batch_metrics
from trl_mentor.records import Arm, RerollOutcome
from trl_mentor.tallies import Tallies, Tally
from trl_mentor.uplift import run_metrics

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *ROOT.glob("changelog.d/*.md"),
]
FRAGMENTS = [path for path in sorted(ROOT.glob("changelog.d/*.md")) if path.name != "README.md"]
NOTES = sorted(ROOT.glob("docs/decisions/*.md"))

# Put together from parts, so that this file is not its own first finding.
MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:" + "|".join(["work", "tmp", "root", "home", "opt", "mnt"]) + r")/\w")
INDEX_HOST = re.compile(
    "|".join([r"pypi\." + "org", "python" + "hosted", "download" + r"\.pytorch", r"://[\w.-]*" + "/simple"])
)


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Path and text of every tracked text file."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        try:
            yield name, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so there is no list of tracked files")
    return dict(tracked_texts())


def findings(texts: dict[str, str], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def local_links(page: str) -> list[str]:
    """Targets of the relative links of a Markdown page, without their anchors."""
    targets = re.findall(r"\]\(([^)\s]+)\)", page)
    return [target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]


def test_pyproject_says_how_the_package_is_built_and_setup_cfg_what_it_is():
    assert "project" not in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert setup["metadata"]["name"] == "trl-mentor"


def test_no_tracked_file_names_a_path_of_somebodys_machine(texts):
    assert findings(texts, MACHINE_PATH) == []


def test_no_tracked_file_names_the_host_of_a_package_index(texts):
    assert findings(texts, INDEX_HOST) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page):
    missing = [link for link in local_links(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert not missing


def test_the_readme_has_at_most_150_lines():
    assert 0 < len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_readmes_example_is_twelve_lines_whose_imports_resolve():
    code = (ROOT / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    assert len(code.splitlines()) <= 12
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            home = importlib.import_module(node.module)
            assert all(hasattr(home, alias.name) for alias in node.names)


def listed_metrics(section):
    """The names in the first column of the table in one section of the page on metrics."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    table = page.partition(f"## {section}")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `") and "`mentor/...`" not in line]
    return sorted(f"mentor/{name}" for row in rows for name in re.findall(r"`(\w+)`", row))


def test_the_page_on_metrics_lists_exactly_those_of_a_batch():
    assert listed_metrics("Of each generation batch") == sorted(batch_metrics(Counters(lessons=1), priced=True))


def test_the_page_on_metrics_lists_exactly_those_of_a_window_and_a_run():
    names = [*map(str, RerollOutcome), *(f"arm:{arm}" for arm in Arm)]
    returned = Tallies({name: Tally(4, 2) for name in names})
    trial = Tallies({f"{arm}/all": Tally(4, 2) for arm in Arm})
    probed = Tallies({str(outcome): Tally(4, 2) for outcome in RerollOutcome})
    counted = Counters(
        recovery=trial,
        transfer=returned,
        probed=probed,
        reliance_count=1,
        entropy_tokens=1,
        echo_checked=1,
        skipped_steps=1,
    )
    window = [name for name in run_metrics(counted, counted) if not name.startswith("mentor/total/")]
    assert listed_metrics("Of each log window and of the run") == sorted(window)


def mapped(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8").partition("## Files")[2].partition("\n## ")[0]


def test_every_module_and_none_that_is_gone_has_its_line_for_contributors():
    modules = {path.name for path in ROOT.glob("trl_mentor/*.py") if path.name != "__init__.py"}
    assert set(re.findall(r"\b\w+\.py\b", mapped("CONTRIBUTING.md"))) == modules


def test_the_readme_maps_every_folder_and_no_module_that_is_gone():
    names = re.findall(r"\b[\w-]+(?:/|\.py\b)", mapped("README.md"))
    there = {path.name for path in ROOT.glob("trl_mentor/*.py")}
    assert {name for name in names if name.endswith(".py")} <= there
    folders = {f"{path.parent.name}/" for path in ROOT.glob("trl_mentor/*/__init__.py")}
    assert folders <= set(names)


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.name)
def test_a_decision_note_has_at_most_40_lines(note):
    assert len(note.read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda fragment: fragment.name)
def test_a_changelog_fragment_is_one_sentence(fragment):
    text = fragment.read_text(encoding="utf-8").strip()
    assert re.fullmatch(r"[^\n]+[.]", text)
    assert not re.search(r"[.!?] [A-Z]", text)
    assert re.fullmatch(r"[\w-]+\.(added|changed|fixed|removed)\.md", fragment.name)


def test_every_test_that_the_paper_map_names_exists():
    named = re.findall(r"`(tests/\w+\.py)(?:::(\w+))?`", (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8"))
    assert named
    for file, function in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not function or function in defined, f"{file} has no test {function}"


def test_the_planted_faults_are_found():
    home = "/" + "home/ann/model"
    assert findings({"a.py": f'path = "{home}"'}, MACHINE_PATH) == [f'a.py:1: path = "{home}"']
    assert findings({"a.md": "see /" + "v1 and docs/tmp/x"}, MACHINE_PATH) == []
    assert findings({"a.md": "from https://pypi." + "org/x"}, INDEX_HOST)
    assert local_links("[a](b.md#c) [d](https://e) [f](#g)") == ["b.md"]

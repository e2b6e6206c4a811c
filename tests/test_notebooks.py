"""The notebooks: they run from a clean kernel, offline, and what is committed is what such a run prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html import escape
from pathlib import Path

import nbformat
import pytest
from test_check import HINT, Endpoint
from test_repository import MACHINE_PATH

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(path.stem for path in ROOT.glob("notebooks/*.ipynb"))
WATCH, EXPLORE, WRITE = "01_watch_a_collapse", "02_explore_a_journal", "03_write_your_own_mentor"
KEY = "sk-the-key-of-the-notebooks"
SECONDS = 550
MAX_BYTES = 300_000

pytestmark = pytest.mark.timeout(SECONDS + 60)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def committed(name: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def printed(notebook: nbformat.NotebookNode) -> str:
    """All texts in the outputs, in order."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)


def kinds(cell: nbformat.NotebookNode) -> set[str]:
    """What a cell shows: names of streams and MIME types."""
    return {kind for output in cell.outputs for kind in output.get("data", [output.get("name", output.output_type)])}


def has_table(notebook: nbformat.NotebookNode, *words: str) -> bool:
    pages = [output.get("data", {}).get("text/html", "") for cell in code_cells(notebook) for output in cell.outputs]
    return any(all(word in page for word in words) for page in pages)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def executed(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> dict[str, nbformat.NotebookNode]:
    """Every notebook after a run from a clean kernel, in a folder of its own; the first one is given an endpoint."""
    assert NOTEBOOKS == [WATCH, EXPLORE, WRITE]
    folder = tmp_path_factory.mktemp("notebooks")
    asking = {"MENTOR_BASE_URL": endpoint.url, "MENTOR_MODEL": "mentor", "MENTOR_API_KEY_ENV": "KEY_OF_NOTEBOOKS"}
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    env = kept | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "KEY_OF_NOTEBOOKS": KEY}
    env |= {name: str(folder / name) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")} | asking
    # Where its list of fonts is missing, matplotlib says on stderr that it makes one.
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], env=env, check=True, capture_output=True)
    running = {}
    for name in NOTEBOOKS:
        (folder / name).mkdir()
        copy = shutil.copy(ROOT / "notebooks" / f"{name}.ipynb", folder / name)
        command = [sys.executable, ROOT / "notebooks" / "execute.py", copy]
        running[name] = (
            Path(copy),
            subprocess.Popen(command, env=env, cwd=folder, stderr=subprocess.PIPE, text=True, errors="replace"),
        )
    errors = {name: process.communicate(timeout=SECONDS)[1] for name, (_, process) in running.items()}
    for name, (_, process) in running.items():
        assert process.returncode == 0, f"{name}\n{errors[name][-4000:]}"
    return {name: nbformat.read(copy, as_version=4) for name, (copy, _) in running.items()}


# What is committed


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_committed_notebook_was_run_from_top_to_bottom_without_a_warning_and_names_no_machine(name):
    notebook, file = committed(name), ROOT / "notebooks" / f"{name}.ipynb"
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not {"stderr", "error"} & {kind for cell in cells for kind in kinds(cell)}
    assert not re.search(r"site-packages|ipykernel_\d|Warning\b", printed(notebook))
    assert not MACHINE_PATH.search(printed(notebook))
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert file.stat().st_size < MAX_BYTES


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_says_first_what_it_needs_and_that_its_world_is_none_of_llms(name):
    opening = committed(name).cells[0].source
    assert "**What it needs:**" in opening
    assert re.search(r"No GPU, no\s+network", opening)
    assert re.search(r"planted|scripts", opening)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_relative_link_of_a_notebook_leads_somewhere(name):
    texts = "\n".join(cell.source for cell in committed(name).cells if cell.cell_type == "markdown")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", texts) if not link.startswith("http")]
    assert [link for link in links if not (ROOT / "notebooks" / link).exists()] == []


def test_without_an_endpoint_the_cell_for_one_says_so_and_asks_nobody(monkeypatch, capsys):
    for name in ("MENTOR_BASE_URL", "MENTOR_MODEL"):
        monkeypatch.delenv(name, raising=False)
    (cell,) = (cell for cell in code_cells(committed(WATCH)) if "MENTOR_BASE_URL" in cell.source)
    exec(cell.source, {"os": os})
    assert capsys.readouterr().out.startswith("skipped: set MENTOR_BASE_URL and MENTOR_MODEL")
    assert "skipped: set MENTOR_BASE_URL" in printed(committed(WATCH))


def test_what_a_policy_wrote_is_escaped_before_it_is_shown():
    (cell,) = (cell for cell in code_cells(committed(EXPLORE)) if "def show(item)" in cell.source)
    names = {"escape": escape}
    exec(cell.source.partition("\n\ndef show")[0], names)
    assert "<script>" not in names["line"]("re-roll <script>", "<script>")


# How notebooks are run


def run_cells(folder: Path, *sources: str, **env: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """What `execute.py` says of a notebook with these cells, and the notebook's file."""
    file = folder / "cells.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources))), file)
    command = [sys.executable, ROOT / "notebooks" / "execute.py", file]
    return subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False), file


def test_the_kernel_is_the_python_that_runs_it_whatever_kernels_are_installed(tmp_path):
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text('{"argv": ["no-such-python", "{connection_file}"], "display_name": "x", "language": "python"}')
    done, file = run_cells(tmp_path, "import sys; print(sys.executable)", JUPYTER_DATA_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert printed(nbformat.read(file, as_version=4)).strip() == sys.executable


def test_a_cell_that_fails_is_an_error_and_leaves_the_file_as_it_was(tmp_path):
    done, file = run_cells(tmp_path, "print('first')", "1 / 0")
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr
    assert printed(nbformat.read(file, as_version=4)) == ""


# A run from a clean kernel


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_offline_and_shows_in_each_cell_what_is_committed(executed, name):
    cells = code_cells(executed[name])
    assert "stderr" not in {kind for cell in cells for kind in kinds(cell)}
    assert [kinds(cell) for cell in cells] == [kinds(cell) for cell in code_cells(committed(name))]


def test_a_collapse_is_watched_from_attempts_to_lesson(executed):
    text = printed(executed[WATCH])
    assert re.search(r"this group +rewards(?: +0\.00){4} +advantages(?: +0\.00){4}\n", text)
    collapsed = int(re.search(r"no completion succeeds \(collapsed\): (\d+)", text)[1])
    assert collapsed > 100
    assert re.search(r"generation .+\n +LOW from the judge: Too vague", text)
    assert re.search(r"repair .+\n +HIGH from the judge", text)
    for role in ("attribution", "generation", "judgment", "repair"):
        assert f"=== user message: {role}" in text
    assert "-> The hint gives the final answer away" in text
    assert "LOW from the rules  Just write" in text
    assert "drafts that the judge saw: 1" in text
    assert re.search(r"reward 1  advantage +[01]\.\d\d", text)
    plain, hinted = (
        int(re.search(rf"{name} +(\d+) of 64", text)[1]) for name in ("plain question", r"hint \+ question")
    )
    assert hinted > plain + 5
    assert re.search(r"What the run took *\n\+-+\+\n\| policy tokens +\| [\d,]+ +\|", text)
    assert re.search(r"\d+ interventions: .*'rescued'", text)
    assert '"outcome": "rescued"' in text


def test_the_cell_for_an_endpoint_asks_it_and_keeps_the_key_to_itself(executed, endpoint):
    assert [request["model"] for request in endpoint.requests] == ["mentor"] * len(endpoint.requests)
    assert len(endpoint.requests) >= 3
    text = printed(executed[WATCH])
    assert re.search(rf"hint +{re.escape(HINT)}\n", text)
    assert KEY not in nbformat.writes(executed[WATCH])


def test_a_journal_is_explored_from_collapse_to_the_bill(executed):
    notebook = executed[EXPLORE]
    text = printed(notebook)
    early, late = map(float, re.search(r"first five batches (\S+), in the last five (\S+)", text).groups())
    assert late < early
    low = re.search(r"uplift +\+\S+ \[([+-]\S+), ", text)[1]
    assert float(low) > 0
    assert sum("image/png" in kinds(cell) for cell in code_cells(notebook)) == 2
    assert re.search(r"hint withheld +\d+ of +\d+ solved without a hint now", text)
    assert has_table(notebook, "tokens of the policy", "re-rolls of the control")
    assert has_table(notebook, "attribution", "tokens read")
    assert has_table(notebook, "<b>diagnosis</b>", "re-roll 1", "rescued")


def test_every_part_of_ones_own_is_seen_to_work(executed):
    text = printed(executed[WRITE])
    assert "You are a teacher of physics." in text
    assert "did you mean 'giveaways'?" in text
    assert "LOW  Draw one square metre" in text
    assert "Not targeted." in text
    assert "rules LOW The hint states a conversion factor" in text
    assert "asked the judge:  ['judgment']" in text
    assert "failed - the backend failed in every attempt: BackendError: connection refused" in text
    assert re.search(r"strategy written_hints .*'rescued'", text)
    assert "calls to a mentor: 0" in text
    calls, journaled = re.search(r"calls (\{.+\}) of which the journal has (\d+)", text).groups()
    assert sum(map(int, re.findall(r": (\d+)", calls))) == int(journaled) > 0
    assert re.search(r"templates +ok +domain 'units'", text)
    assert re.search(r"leak rule +ok", text)

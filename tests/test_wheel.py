"""What users install: the wheel, looked at and imported with the source tree out of sight."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
INGREDIENTS = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built from a copy of the source tree, so that no left-over of an earlier build gets in or is made."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in INGREDIENTS:
        shutil.copy(ROOT / name, source)
    for folder in ("trl_mentor", "tests"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", build, out], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with nothing but the installed wheel."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--target", target, wheel], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def run(installed: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=installed.parent,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_template_and_checkpoint_file_is_in_the_wheel(names):
    patterns = ("**/*.py", "**/*.jinja", "report/page.*")
    wanted = [path for pattern in patterns for path in ROOT.glob(f"trl_mentor/{pattern}")]
    wanted += [*ROOT.glob("trl_mentor/demo/checkpoint/*"), ROOT / "trl_mentor" / "py.typed"]
    files = {path.relative_to(ROOT).as_posix() for path in wanted}
    assert {Path(name).suffix for name in files} >= {".py", ".jinja", ".typed", ".safetensors"}
    assert files <= names


def test_nothing_but_the_package_and_its_metadata_is_in_the_wheel(names):
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"trl_mentor"}
    assert not [name for name in names if {"tests", "__pycache__"} & set(name.split("/"))]


def test_the_metadata_names_the_licence_the_python_and_the_command(wheel, names):
    (info,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    assert f"{info}/licenses/LICENSE" in names
    with zipfile.ZipFile(wheel) as archive:
        metadata = message_from_bytes(archive.read(f"{info}/METADATA"))
        commands = archive.read(f"{info}/entry_points.txt").decode()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert not [line for line in metadata.get_all("Classifier", []) if line.startswith("License ::")]
    assert "trl-mentor = trl_mentor.cli.main:main" in commands


def test_the_installed_package_imports_without_the_source_tree_and_without_torch(installed):
    code = "import sys, trl_mentor; print(trl_mentor.__file__, 'torch' in sys.modules)"
    assert run(installed, code) == f"{installed / 'trl_mentor' / '__init__.py'} False"


@pytest.mark.parametrize("domain", ["math", "code"])
def test_the_installed_templates_load(installed, domain):
    code = f"from trl_mentor.templating import PromptTemplates as P; print(len(P({domain!r}).fallback) > 0)"
    assert run(installed, code) == "True"

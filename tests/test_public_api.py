"""The names that `trl_mentor` exports."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import trl_mentor


def test_all_is_sorted():
    assert trl_mentor.__all__ == sorted(trl_mentor.__all__)


def test_all_the_table_of_homes_and_the_imports_for_type_checkers_agree():
    tree = ast.parse(Path(trl_mentor.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    typed = {
        alias.name: node.module.removeprefix("trl_mentor.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == trl_mentor._HOMES
    assert set(trl_mentor.__all__) == set(trl_mentor._HOMES)


@pytest.mark.parametrize("name", trl_mentor.__all__)
def test_every_name_resolves_to_what_its_home_defines(name):
    home = importlib.import_module(f"trl_mentor.{trl_mentor._HOMES[name]}")
    exported = getattr(trl_mentor, name)
    assert exported is getattr(home, name)
    assert exported.__module__ == home.__name__


def test_dir_lists_the_public_names():
    assert dir(trl_mentor) == trl_mentor.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Mentro'"):
        _ = trl_mentor.Mentro


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_imports_neither_torch_nor_trl():
    assert run("import sys, trl_mentor; print({'torch', 'trl', 'transformers'} & set(sys.modules))") == "set()"


def test_a_mentor_without_a_trainer_needs_no_torch():
    names = "Mentor, OpenAIBackend, ScriptedBackend, read_journal"
    assert run(f"import sys; from trl_mentor import {names}; print('torch' in sys.modules)") == "False"


def test_the_names_of_a_training_script_come_from_one_import():
    names = "MentorGRPOTrainer, MentorGRPOConfig, MentorCallback, Mentor, ScriptedBackend, read_journal"
    assert run(f"from trl_mentor import {names}; print(MentorGRPOTrainer.__mro__[1].__name__)") == "GRPOTrainer"

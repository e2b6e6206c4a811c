# Needs Python >= 3.11, make and pip; everything else goes into .venv on the first run.
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# One thread per process that sleeps while it waits: tiny models gain nothing from more, and spinning threads starve
# the other processes of a small machine. Both can be set from outside.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo test lint types clean

demo: $(STAMP) ## Train a tiny policy with and without the mentor on the CPU; ARGS="--short" for the quick form
	$(BIN)/trl-mentor demo $(ARGS)

test: $(STAMP) ## Run the whole test suite; ARGS="tests/test_collapse.py" for a part of it
	$(BIN)/python -m pytest $(ARGS)

lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Check types
	$(BIN)/mypy

clean: ## Remove the environment and every cache
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

$(STAMP): setup.cfg pyproject.toml constraints-cpu.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"trl-mentor needs Python >= 3.11, got {v[0]}.{v[1]}; run make PYTHON=/path/to/python3.11")'
	@echo "Installing into $(VENV); the first time takes a few minutes."
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	$(BIN)/python -m pip install --quiet --progress-bar off --disable-pip-version-check -c constraints-cpu.txt -e '.[test,dev]'
	@touch $(STAMP)

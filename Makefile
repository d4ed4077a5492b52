# The two commands of the README: `make demo` and `make test`. Each works first on an empty machine.
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# A test may lose a race to a busy machine: what fails is run once more and listed as RERUN, to be
# mended. What fails for its inputs fails again, since Hypothesis replays the example that it found.
# `make test RERUNS=0` forgives nothing.
RERUNS ?= 1

.PHONY: demo test test-long lint services docs wheel lock clean

demo: $(VENV)/.ready
	@$(BIN)/gpuwarden demo $(ARGS)

# Four workers on two cores: half of the time is spent waiting for processes and clocks.
test: $(VENV)/.ready services lint
	$(BIN)/pytest -q -n 4 --dist loadfile --reruns $(RERUNS) -m "not long and not gpu"

test-long: $(VENV)/.ready services
	$(BIN)/pytest -q -m "long and not gpu"

lint: $(VENV)/.ready
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/lint-imports --no-cache > $(VENV)/lint-imports.log 2>&1 || { cat $(VENV)/lint-imports.log; exit 1; }
	$(BIN)/mypy

services:
	@deploy/test_services.sh

# Reference tables of docs/, from the registries.
docs: $(VENV)/.ready
	$(BIN)/python docs/generate.py

wheel: $(VENV)/.ready
	$(BIN)/python -m build --wheel --no-isolation

# Pins with hashes for every supported Python, without index addresses. Needs uv on PATH.
lock:
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-emit-index-url --no-header -q -o requirements.lock

$(VENV)/.ready: requirements.lock pyproject.toml deploy/make_venv.sh
	@deploy/make_venv.sh

clean:
	rm -rf $(VENV) build dist gpuwarden-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis

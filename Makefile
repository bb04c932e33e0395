# `make demo` and `make test` are all a newcomer needs; both make .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch's threads fight over the cores as soon as anything else runs, so tests use one each.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test slow lint types clean

demo: $(VENV)/installed
	$(BIN)/slimbayes demo

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

slow: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/installed
	$(BIN)/mypy

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache

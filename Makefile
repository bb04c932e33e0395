# `make demo` and `make test` are all a newcomer needs; both make .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compiled when slimbayes is installed, so that a change of them means to install it again.
KERNELS := hatch_build.py $(wildcard src/slimbayes/_fast/native/*.c src/slimbayes/_fast/native/*.inc)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# torch's threads fight over the cores as soon as anything else runs, so each process uses one.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test slow lint types api dist hooks bench peers reproduce results clean

demo: $(VENV)/for-use
	$(BIN)/slimbayes demo

test: $(VENV)/for-development
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

slow: $(VENV)/for-development
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

lint: $(VENV)/for-development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/for-development
	$(BIN)/mypy

# docs/api.md, the list of public modules and names.
api: $(VENV)/for-development
	$(BIN)/python docs/make_api.py

# Wheels and sdist in dist/, each installed in an empty environment and tried with the README's hello world.
dist:
	$(PYTHON) tools/check_wheel.py

# Ruff and mypy before every commit.
hooks: $(VENV)/for-development
	$(PIP) pre-commit
	$(BIN)/pre-commit install

# What every method costs, as a ratio to the plain network: ten minutes in which nothing else should run.
bench: $(VENV)/for-development
	$(BIN)/python -m benchmarks

# The runs that a table or figure of the papers needs: make reproduce NAME=k_tied_figure_6 [SCALE=paper]; without NAME, the list.
SCALE ?= small
reproduce: $(VENV)/for-development
	$(BIN)/python -m reproductions $(if $(NAME),$(NAME) --scale $(SCALE),--list)

# Every table, figure and page of docs/results, and the tables of costs, from the stored runs.
results: $(VENV)/for-development
	$(BIN)/python -m reproductions --results
	$(BIN)/python -m reproductions.fitted_posteriors
	$(BIN)/python -m benchmarks.pages

# Other libraries' train steps beside ours; makes benchmarks/.venv on first use.
peers:
	$(PYTHON) -m benchmarks.peers

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Compiling all of torch ahead of time would take longer than the demo does for the part that it imports.
$(VENV)/for-use: pyproject.toml constraints.txt $(KERNELS) | $(BIN)/python
	$(PIP) --no-compile -e ".[train,sklearn,report]"
	touch $@

$(VENV)/for-development: pyproject.toml constraints.txt $(KERNELS) | $(BIN)/python
	$(PIP) -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) benchmarks/.venv .pytest_cache .mypy_cache .ruff_cache

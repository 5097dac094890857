# Two commands: `make run` and `make test`. Both set everything up on a fresh Linux machine with Python and pip.

# The newest Python that runs: a name on PATH may be a shim that fails. Another one: make test PYTHON=python3.12
PYTHON := $(or $(PYTHON),$(shell for name in python3.13 python3.12 python3.11; do \
  $$name -c '' 2>/dev/null && echo $$name && break; done))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# `make run` compares these methods on examples/TASK.toml. Tasks other than the default need RPDP_DATA.
TASK ?= breast_cancer
METHODS ?= rpdp,minimum,dropout,privacy_free
# Torch first and exactly pinned: any other specification may pull gigabytes of GPU packages.
TORCH := torch==2.13.0

.PHONY: run test check docs test-slow test-optimised wheel-test mutants mutation-sample bench clean

run: $(READY)
	$(BIN)/rpdp compare examples/$(TASK).toml --methods $(METHODS)

test: check docs
	$(BIN)/pytest -n 2 --dist worksteal

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs site

test-slow: $(READY)
	$(BIN)/pytest -n 2 -m slow --timeout 0

# The ledger under `python -O`, which drops asserts. Those of the tests stay: pytest rewrites them before it compiles.
test-optimised: $(READY)
	$(BIN)/python -O -m pytest -W ignore::pytest.PytestConfigWarning tests/ledger

# Installs the built wheel, without extras, into an empty environment of every supported Python at hand.
wheel-test: $(READY)
	$(BIN)/pytest -m 'slow or not slow' tests/test_wheel.py

# Seeded privacy bugs, each of which a test must catch; writes the table in the docs.
mutants: $(READY)
	$(BIN)/python -m tests.mutants --jobs 2 --docs docs/mutants.md

# About 1,560 random changes of the code on which the promise rests. Goes on where it stopped; delete the results to
# start anew. Hours on a laptop.
mutation-sample: $(READY)
	$(BIN)/python -m tests.mutants.general --jobs 2 --results tests/mutants/general/results.csv --docs docs/mutation-sample.md

bench: $(READY)
	for file in benchmarks/[a-z]*.py; do $(BIN)/python $$file || exit 1; done

$(READY): pyproject.toml lab/pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no python3.13, python3.12 or python3.11 that runs; give one: make $(MAKECMDGOALS) PYTHON=…"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt $(TORCH)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[train,demo,ledger,console,consent,flower,hf,tensorboard,docs,bench,dev]' --editable lab
	touch $@

clean:
	rm -rf $(VENV) runs build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

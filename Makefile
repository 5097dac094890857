# Two commands: `make run` and `make test`. Both set everything up on a fresh machine with Python 3.11 and pip.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What `make run` runs: examples/TASK.toml, our method against these. Others than the default need RPDP_DATA.
TASK ?= breast_cancer
METHODS ?= rpdp,minimum,dropout,privacy_free
# Torch first and exactly pinned: any other spec may pull gigabytes of GPU packages.
TORCH := torch==2.13.0

.PHONY: run test check test-slow mutants bench clean

run: $(READY)
	$(BIN)/rpdp compare examples/$(TASK).toml --methods $(METHODS)

test: check
	$(BIN)/pytest -n 2

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: $(READY)
	$(BIN)/pytest -n 2 -m slow --timeout 0

# Seeded privacy bugs, each of which a test must catch; writes the table in the docs.
mutants: $(READY)
	$(BIN)/python -m tests.mutants --jobs 2 --docs docs/mutants.md

bench: $(READY)
	for file in benchmarks/[a-z]*.py; do $(BIN)/python $$file || exit 1; done

$(READY): pyproject.toml lab/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt $(TORCH)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[train,demo,ledger,flower,bench,dev]' --editable lab
	touch $@

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache .hypothesis

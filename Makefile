# Every target sets up what it needs by itself; nothing has to be installed by hand but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup run demo check test chaos interop bench bench-kafka clean

help:
	@grep -hE '^## ' $(MAKEFILE_LIST) | sed 's/## /  /'

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

## setup        the virtual environment in .venv with everything the other targets need
setup: $(STAMP)

# As pip does for an installed package: start-up is half as long, also where Python is told to write no bytecode.
.PHONY: bytecode
bytecode: $(STAMP)
	@$(BIN)/python -m compileall -q src

## run          a broker on 127.0.0.1:9092 with its data in ./data (ARGS="--listen ... " to change it)
run: bytecode
	$(BIN)/skidway serve --data-dir data $(ARGS)

## check        style, types, dependency rule, tidiness: under a minute
check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/tidy

## test         all tests that need nothing but Python
test: bytecode
	@$(MAKE) --no-print-directory -j2 test-spark test-others

# Side by side, and three processes: each waits a lot, and together they keep two cores busy. Spark's tests are one process, one after another, and print when they are done.
.PHONY: test-spark test-others
test-others:
	$(BIN)/pytest -q -n 3 --dist loadgroup -m 'not chaos and not spark' tests

test-spark:
	@log=$$(mktemp); code=0; $(BIN)/pytest -q -m 'spark and not chaos' tests/spark >"$$log" 2>&1 || code=$$?; \
	echo; echo "tests that run Spark:"; cat "$$log"; rm -f "$$log"; exit $$code

## demo         a broker, a shop's events and four pipelines on Spark for about a minute (ARGS="--seconds 20")
demo: bytecode
	$(BIN)/python -m demo $(ARGS)

-include bench/bench.mk interop/interop.mk

## chaos        the long crash tests: power losses, kill -9 for minutes, clusters of 3 and 5 nodes, Spark; over an hour (needs 3 GB of disk)
chaos: $(STAMP)
	$(BIN)/pytest -q -s -m chaos tests/crash tests/cluster tests/sim tests/storm tests/unit/groups tests/unit/quorum tests/spark

clean:
	rm -rf $(VENV) data .mypy_cache .ruff_cache .import_linter_cache .hypothesis

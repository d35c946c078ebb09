# Every target sets up what it needs by itself; nothing has to be installed by hand but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SERVING := $(VENV)/.serving
STAMP := $(VENV)/.installed
PAGES := $(VENV)/.pages
LOCK := constraints.txt

# uv installs packages without bytecode. Where Python is told to write none either, as in many images, every process of a
# test run would compile all that it imports: more than half of what starting it costs.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup lock run demo docs check unit area test test-all coverage chaos interop bench bench-kafka clean

help:
	@grep -hE '^## ' $(MAKEFILE_LIST) | sed 's/## /  /'

# uv, from PyPI, installs into the environment in seconds; where it cannot be had, pip does the same in minutes.
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
install = @if test -x $(BIN)/uv && $(UV) $(2) --constraint $(LOCK) --editable '$(1)'; then :; else \
	$(BIN)/python -m ensurepip >/dev/null 2>&1; $(PIP) --constraint $(LOCK) --editable '$(1)'; fi

$(BIN)/python:
	@$(PYTHON) -m venv --without-pip $(VENV)
	@$(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check uv >/dev/null 2>&1 || true

# The broker and what it needs at run time, nothing else.
$(SERVING): pyproject.toml $(LOCK) | $(BIN)/python
	@echo "make: installing the broker into $(VENV) (once, about 10 seconds)"
	$(call install,.)
	@touch $@

# With bytecode, which uv leaves to the first import: told to write none, every Python that Spark starts would compile
# what it imports again, two seconds each time.
$(STAMP): pyproject.toml $(LOCK) | $(BIN)/python
	@echo "make: installing the tools for tests, Spark and benchmarks into $(VENV) (once, 1 to 3 minutes, 1.7 GB)"
	$(call install,.[dev],--compile-bytecode)
	@touch $(SERVING) $@

$(PAGES): pyproject.toml $(LOCK) | $(BIN)/python
	@echo "make: installing the generator of the documentation into $(VENV) (once, about 15 seconds)"
	$(call install,.[docs])
	@touch $(SERVING) $@

## setup        the virtual environment in .venv with everything the other targets need
setup: $(STAMP)

## lock         constraints.txt: the newest versions that pyproject.toml allows, for Python 3.11 and later
EXTRAS := $(foreach extra,client redis postgres spark pipelines registry docs dev,--extra $(extra))
lock: | $(BIN)/python
	@sed -n '/^#/p' $(LOCK) > $(LOCK).new
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-annotate --no-header $(EXTRAS) pyproject.toml >> $(LOCK).new
	@mv $(LOCK).new $(LOCK)

# As pip does for an installed package: start-up is half as long, also where Python is told to write no bytecode.
.PHONY: bytecode
bytecode: $(STAMP)
	@$(BIN)/python -m compileall -q src

## run          a broker on 127.0.0.1:9092 with its data in ./data (ARGS="--listen ... " to change it)
run: $(SERVING)
	@$(BIN)/python -m compileall -q src
	$(BIN)/skidway serve --data-dir data $(ARGS)

## docs         the documentation as a site in build/site; fails on a dead link
# Not --quiet: it hides the warnings that --strict counts, and then nothing fails.
docs: $(PAGES)
	$(BIN)/mkdocs build --strict
	@echo "docs: open build/site/index.html"

## check        style, types, dependency rule, tidiness: a minute or two
check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini tests
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/tidy

## unit         the quick tests of the core, which starts no process: seconds
unit: bytecode
	$(BIN)/pytest -q -n 2 --dist loadgroup -m 'not chaos and not slow' $(addprefix tests/unit/,$(CORE)) tests/scenarios

CORE := broker groups log metadata quorum records replica runtime schedules transactions wire

## area         all tests whose path contains a word, slow ones too: make area A=groups
area: bytecode
	@files=$$($(BIN)/python tests/area.py '$(A)') && $(BIN)/pytest -q -n 2 --dist loadgroup $$files

## test         the quick tests and one real thing of every kind (tests/slow.txt says what is left out): under 5 minutes
test: bytecode
	@$(MAKE) --no-print-directory -j2 test-spark test-others TIER='and not slow' WORKERS=4

## test-all     everything that needs nothing but Python and is not in `make check`; fails on skips that tests/skips.txt does not list (FAILED=folder: writes there what failed)
test-all: bytecode
	@$(MAKE) --no-print-directory -j2 test-spark test-others LISTED=--listed-skips WORKERS=3 SPARKS='-n 2 --dist loadgroup' FAILED='$(FAILED)'

# Side by side: each waits a lot, and together they keep two cores busy; of all tests, one worker has its hands full with
# those that need a cluster. The tests of tests/spark have processes of their own, which print when they are done: no
# other worker has to load what the connector needs. In `make test` that is one, as starting Spark is most of the work;
# in `make test-all` two, as their tests wait a lot; with three, Spark gave up on a Python process that did not start in 10 s. tests/tidy
# is run by `make check`.
.PHONY: test-spark test-others
test-others:
	$(BIN)/pytest -q -n $(WORKERS) --dist loadgroup $(LISTED) $(if $(FAILED),--failed-to $(FAILED)/others.txt) --ignore tests/spark --ignore tests/tidy -m 'not chaos $(TIER)' tests

test-spark:
	@log=$$(mktemp); code=0; $(BIN)/pytest -q $(SPARKS) $(LISTED) $(if $(FAILED),--failed-to $(FAILED)/spark.txt) -m 'not chaos $(TIER)' tests/spark >"$$log" 2>&1 || code=$$?; \
	echo; echo "tests of the Spark connector:"; cat "$$log"; rm -f "$$log"; exit $$code

## coverage     branches of the core that quick tests without processes run; fails below the floor in pyproject.toml: minutes
coverage: bytecode
	$(BIN)/pytest -q -n 2 --dist loadgroup -p pytest_cov --cov --cov-report=term -m 'not chaos and not slow' $(addprefix tests/unit/,$(CORE)) tests/scenarios tests/sim

## demo         a broker, a shop's events and four pipelines on Spark for about a minute (ARGS="--seconds 20")
demo: bytecode
	$(BIN)/python -m demo $(ARGS)

-include bench/bench.mk interop/interop.mk

# Simulated clusters of `make chaos`: other seeds each time; the range is printed, so that it can be run again.
SEEDS ?= 500

## chaos        the long crash tests: fresh seeds of the simulator, power losses, kill -9 for minutes, clusters of 3 and 5 nodes, Spark; over an hour (needs 3 GB of disk)
chaos: $(STAMP)
	$(BIN)/skidway sim run --fresh --seeds $(SEEDS)
	$(BIN)/pytest -q -s -m chaos tests/crash tests/cluster tests/hostile tests/sim tests/storm tests/unit/groups tests/unit/quorum tests/spark

clean:
	rm -rf $(VENV) build/coverage.db data .mypy_cache .ruff_cache .import_linter_cache .hypothesis

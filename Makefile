# Every target sets up what it needs.  `make demo KEEP=1` stays up until Ctrl-C.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
.SILENT:

BIN := .venv/bin
CODE := $(wildcard pipeline checks alerts monitor demo tests bench grafana docs)
PYTEST := $(BIN)/python -m pytest -q
MEASURED := $(BIN)/coverage run -m pytest -q
SPREAD := -n auto --maxprocesses 8 --dist worksteal
FAST_ONES := not spark and not stack and not long
# What uses each declared package at least once.
FLOORED := tests/alerts tests/checks/probes tests/pipeline/test_pii.py tests/monitor/config tests/monitor/store tests/monitor/web tests/monitor/test_commands.py tests/monitor/test_schedule.py tests/pipeline/copies tests/pipeline/delta tests/pipeline/standards tests/pipeline/transports
PROOFS := tests/proof tests/seeds tests/toy
LOGS := tests/pipeline/landing tests/pipeline/sources tests/demo
# Files with a test of that mark (tests/conftest.py holds them to it): to import all others takes a stage 15 s.
SLOW_FILES = $(wildcard $(sort $(shell cut -d: -f1 tests/slow_tests.txt)))
MARKED = $(sort $(shell grep -rl 'mark\.$(1)' $(2) --include='test_*.py'))
# Compiled files are kept, whatever the machine says: else each process of each test compiles all anew.
export PYTHONDONTWRITEBYTECODE :=
# uv asks those whom the machine trusts, as pip does, and not only those that it was built with.
export UV_SYSTEM_CERTS := true
# Limits against hanging only.  Interrupted tests still tell what has failed.
LIMIT := timeout --foreground --signal INT --kill-after 60
# The fast tests took 6 minutes on two quiet cores, and 20 beside other work.
FAST := $(LIMIT) 1800
THOROUGH := $(LIMIT) 3600
SPARK := $(LIMIT) 3600
STACK := $(LIMIT) 3900

.PHONY: help setup demo drill docs slow test test-fast test-thorough test-spark test-logs test-stack test-proof test-long mutants check check-static check-fast fmt bench lock floors clean basics libraries packages

help:
	echo "make demo | drill | test | check | docs | test-long | mutants | bench | fmt | lock | floors | clean"

setup: .venv/.locked build/jars/.locked

# A virtual environment that holds exactly the locked versions.
.venv/.locked: requirements.lock requirements-build.lock pyproject.toml | basics
	if ! test -x $(BIN)/python; then
		echo "setup: the first run takes 1 to 6 minutes: Python packages, then jars" >&2
		python=$$(./python.sh)
		./step.sh "virtual environment in .venv" "$$python" -m venv .venv
	fi
	if ! test -x $(BIN)/uv; then
		$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
		./step.sh "installer of packages" $(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-build.lock
	fi
	./step.sh "$$(grep -c == requirements.lock) Python packages of requirements.lock" $(BIN)/uv pip install -q --python $(BIN)/python --compile-bytecode --require-hashes --build-constraints requirements-build.lock -r requirements.lock
	./step.sh "Sluice itself" $(BIN)/uv pip install -q --python $(BIN)/python --no-deps --build-constraints requirements-build.lock -e .
	touch $@

build/jars/.locked: jars.lock .venv/.locked
	$(BIN)/python -m pipeline.spark.jars
	touch $@

# Spark starts in half the time with it; tests start Spark some fifty times.
build/jars/spark.size: build/jars/.locked
	./step.sh "archive of Spark's classes" $(BIN)/python -m pipeline.spark.classes

demo: libraries setup
	exec $(BIN)/python -m demo run $(if $(KEEP),--keep)

# A thousand faults put into a running pipeline, and what found them; some ten minutes (docs/drill.md).
drill: libraries setup
	exec $(BIN)/python -m demo drill

# Both at once: what reads the code needs one core, and laws are tried with few examples, walks are short (all: make test).
check: setup
	$(MAKE) --no-print-directory -j2 check-static check-fast

check-static: setup
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/lint-imports
	$(BIN)/mypy $(CODE)

check-fast: setup
	$(FAST) $(PYTEST) $(SPREAD) -m "$(FAST_ONES) and not thorough" --hypothesis-profile=brief

# Writes anew which tests `make check` leaves out; on a quiet machine.
slow: setup
	$(FAST) $(PYTEST) $(SPREAD) -m "$(FAST_ONES)" --hypothesis-profile=brief --durations=0 --durations-min=0.05 | tee build/slow.txt
	$(BIN)/python -m tests.slow < build/slow.txt

# Real servers make tests wait, Spark and laws make them compute: all at once, and laws while others wait.
# Each stage has servers of its own.  Each line says whose it is.
test: packages setup
	$(BIN)/coverage erase
	$(BIN)/python -m tests.proof.tally begin
	$(MAKE) --no-print-directory -j2 test-fast build/jars/spark.size
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=95
	$(MAKE) --no-print-directory -j5 test-spark test-logs test-proof test-stack test-thorough
	$(BIN)/python -m tests.proof.tally

# Coverage doubles the time of a test, so it is measured where tests are many and short.
test-fast: setup
	$(FAST) $(MEASURED) $(SPREAD) -m "$(FAST_ONES) and not thorough"

test-thorough: setup
	$(THOROUGH) nice -n 10 $(PYTEST) --durations=12 -m "$(FAST_ONES) and thorough" $(call MARKED,thorough,tests) $(SLOW_FILES) 2>&1 | sed -u 's/^/thorough | /'

test-spark: setup
	$(SPARK) $(PYTEST) --durations=12 -m "spark and not stack and not long" $(call MARKED,spark,tests) 2>&1 | sed -u 's/^/spark | /'

test-stack: packages setup
	$(STACK) $(PYTEST) --durations=12 -m "stack and not long" $(filter-out $(addsuffix /%,$(LOGS) $(PROOFS)),$(call MARKED,stack,tests)) 2>&1 | sed -u 's/^/stack | /'

test-logs: packages setup
	$(STACK) $(PYTEST) --durations=12 -m "stack and not long" $(call MARKED,stack,$(LOGS)) 2>&1 | sed -u 's/^/logs | /'

test-proof: packages setup
	$(STACK) $(PYTEST) --durations=12 -m "stack and not long" $(call MARKED,stack,$(PROOFS)) 2>&1 | sed -u 's/^/proof | /'

test-long: packages setup
	$(PYTEST) -m long
	$(MAKE) --no-print-directory mutants

# Mistakes put into what decides, one at a time: which of them does no fast test notice?  (docs/testing.md)
mutants: setup
	nice -n 10 $(BIN)/python -m tests.mutants

# What a bare machine lacks to begin with; each only where nothing else will do.
NEEDED = $$(test -x $(BIN)/python || ./python.sh >/dev/null 2>&1 || echo python3-venv) $$(test -n "$${JAVA_HOME:-}" || command -v java >/dev/null || echo openjdk-17-jre-headless)

basics:
	./packages.sh $(NEEDED)

# What MySQL is linked with; asked for before anything is downloaded.
libraries:
	./packages.sh libaio1 libnuma1 $(NEEDED)

# Tests never skip for want of a program.
packages:
	./packages.sh $$(cat apt.txt) $(NEEDED)

fmt: setup
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

# The site, from docs and mkdocs.yml; `python -m docs.generate` writes its reference pages.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	echo "site: build/site/index.html"

bench: setup
	for file in bench/*.py; do $(BIN)/python -m "bench.$$(basename "$$file" .py)"; done

# Choose versions anew; afterwards `make setup` installs them.
lock:
	test -x $(BIN)/uv || { echo "run make setup first" >&2; exit 1; }
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --python-version 3.11 --custom-compile-command "make lock" requirements-build.in -o requirements-build.lock
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --python-version 3.11 --custom-compile-command "make lock" pyproject.toml --extra dev --extra docs -o requirements.lock

# The lowest versions that pyproject.toml declares, in an environment of their own: do they do?
FLOORS := build/floors
floors: setup
	mkdir -p $(FLOORS)
	$(BIN)/uv pip compile -q --no-deps --no-header --no-annotate --resolution lowest-direct pyproject.toml --extra all -o $(FLOORS)/lowest.txt
	$(BIN)/uv venv -q --clear --python $(BIN)/python $(FLOORS)/env
	./step.sh "lowest versions" $(BIN)/uv pip install -q --python $(FLOORS)/env/bin/python -r pyproject.toml --extra dev --constraint $(FLOORS)/lowest.txt
	$(BIN)/uv pip install -q --python $(FLOORS)/env/bin/python --no-deps --build-constraints requirements-build.lock -e .
	$(FAST) $(FLOORS)/env/bin/python -m pytest -q $(SPREAD) -m "$(FAST_ONES) and not thorough" --hypothesis-profile=brief $(FLOORED)

clean:
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage*

# Every target sets up what it needs.  `make demo KEEP=1` stays up until Ctrl-C.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
.SILENT:

BIN := .venv/bin
CODE := $(wildcard pipeline checks alerts monitor demo tests bench grafana)
PYTEST := $(BIN)/coverage run -m pytest -q
# Limits against hanging only: three times the slowest that was seen.
FAST := timeout --foreground 900
SPARK := timeout --foreground 900
STACK := timeout --foreground 2700

.PHONY: help setup demo test test-fast test-spark test-stack test-long check fmt bench lock clean packages

help:
	echo "make demo | test | check | test-long | bench | fmt | lock | clean"

setup: .venv/.locked build/jars/.locked

# A virtual environment that holds exactly the locked versions.
.venv/.locked: requirements.lock requirements-build.lock pyproject.toml
	if ! test -x $(BIN)/python; then python=$$(./python.sh); "$$python" -m venv .venv; fi
	if ! test -x $(BIN)/uv; then
		$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
		$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-build.lock
	fi
	$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes --build-constraints requirements-build.lock -r requirements.lock
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --build-constraints requirements-build.lock -e .
	touch $@

build/jars/.locked: jars.lock .venv/.locked
	$(BIN)/python -m pipeline.jars
	touch $@

demo: setup
	exec $(BIN)/python -m demo run $(if $(KEEP),--keep)

check: setup
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(FAST) $(BIN)/python -m pytest -q -m "not spark and not stack and not long"

test: packages setup
	$(BIN)/coverage erase
	$(MAKE) --no-print-directory test-fast test-spark
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=95
	$(MAKE) --no-print-directory test-stack

test-fast: setup
	$(FAST) $(PYTEST) -m "not spark and not stack and not long"

test-spark: setup
	$(SPARK) $(PYTEST) -m "spark and not stack and not long"

test-stack: setup
	$(STACK) $(BIN)/python -m pytest -q -m "stack and not long"

test-long: packages setup
	$(BIN)/python -m pytest -q -m long

# Tests never skip for want of a program: they fail here, in one line.
packages:
	missing=$$(while read -r name; do dpkg-query -W -f '$${db:Status-Status}' "$$name" 2>/dev/null | grep -qx installed || printf ' %s' "$$name"; done <apt.txt)
	test -z "$$missing" || { echo "make test needs packages that are not installed; run: sudo apt-get install -y$$missing" >&2; exit 1; }

fmt: setup
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

bench: setup
	for file in bench/*.py; do $(BIN)/python -m "bench.$$(basename "$$file" .py)"; done

# Choose versions anew; afterwards `make setup` installs them.
lock:
	test -x $(BIN)/uv || { echo "run make setup first" >&2; exit 1; }
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --python-version 3.11 --custom-compile-command "make lock" requirements-build.in -o requirements-build.lock
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --python-version 3.11 --custom-compile-command "make lock" pyproject.toml --extra dev -o requirements.lock

clean:
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage*

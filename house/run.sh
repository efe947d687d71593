#!/bin/bash
# house/run.sh: merge all modules of the map (OLD_TO_NEW=its path) in this checkout; or: house/run.sh PREFIX... for some targets.
set -e
python3 house/plan.py . house/plan.json "${@:-}"
python3 house/move.py . house/plan.json | grep -v ^TEXT
python3 house/targets_fix.py
.venv/bin/ruff check -q --fix --select I,F401 pipeline checks alerts monitor tests bench demo examples grafana || true
.venv/bin/ruff format -q .
python3 house/finish.py; .venv/bin/ruff format -q .
.venv/bin/ruff check . --output-format concise | tail -40
.venv/bin/mypy pipeline checks alerts monitor demo tests bench grafana | tail -40
.venv/bin/lint-imports | tail -n +10

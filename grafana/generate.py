"""Write all files for Grafana and Prometheus: `python -m grafana.generate [RUNBOOKS]`.

RUNBOOKS is the folder or address with which links to runbooks begin, such as the address under
which your operators read them. Without it, links lead to this repository.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from grafana.detail import TABLE
from grafana.overview import OVERVIEW
from grafana.panel import Json
from grafana.rule import Alert, Recording
from grafana.rules import GROUPS

HERE = Path(__file__).parent
RUNBOOKS = "docs/runbooks"
NOTE = "# Written by `python -m grafana.generate`; change grafana/*.py instead.\n"
SCRAPE: Json = {
    "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
    "rule_files": ["rules.yaml"],
    "scrape_configs": [
        {
            "job_name": "sluice",
            "static_configs": [{"targets": ["127.0.0.1:8088"]}],
        }
    ],
}
PROVIDER: Json = {
    "apiVersion": 1,
    "providers": [
        {
            "name": "sluice",
            "folder": "Sluice",
            "type": "file",
            "allowUiUpdates": False,
            "options": {"path": "/etc/grafana/dashboards/sluice"},
        }
    ],
}
SOURCE: Json = {
    "apiVersion": 1,
    "datasources": [
        {
            "name": "Prometheus",
            "type": "prometheus",
            "access": "proxy",
            "url": "$PROMETHEUS_URL",
            "isDefault": True,
            "editable": False,
        }
    ],
}


def outputs(runbooks: str = RUNBOOKS) -> dict[str, str]:
    """Return every generated file, by its path below this folder."""
    return {
        "dashboards/overview.json": _json(OVERVIEW.render()),
        "dashboards/table.json": _json(TABLE.render()),
        "prometheus/prometheus.yaml": NOTE + _yaml(SCRAPE),
        "prometheus/rules.yaml": NOTE + _yaml(rules(runbooks)),
        "provisioning/dashboards/sluice.yaml": NOTE + _yaml(PROVIDER),
        "provisioning/datasources/prometheus.yaml": NOTE + _yaml(SOURCE),
    }


def rules(runbooks: str) -> Json:
    """Return Prometheus' rule file as a value."""
    return {
        "groups": [
            {"name": name, "rules": [_rule(rule, runbooks) for rule in members]}
            for name, members in GROUPS
        ]
    }


def main(arguments: Iterable[str]) -> None:
    """Write all generated files."""
    (runbooks,) = [*arguments] or [RUNBOOKS]
    for name, text in outputs(runbooks).items():
        path = HERE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _rule(rule: Recording | Alert, runbooks: str) -> Json:
    if isinstance(rule, Recording):
        return {"record": rule.name, "expr": rule.expr}
    return {
        "alert": rule.name,
        "expr": rule.expr,
        "for": rule.hold,
        "labels": {"severity": rule.severity.value},
        "annotations": {
            "summary": rule.summary,
            "description": rule.description,
            "runbook_url": f"{runbooks.rstrip('/')}/{rule.page}",
        },
    }


def _json(value: Json) -> str:
    return json.dumps(value, indent=2) + "\n"


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=4096)


if __name__ == "__main__":
    main(sys.argv[1:])

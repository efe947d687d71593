"""Every query of every panel and rule on a real Prometheus: no error, and not empty.

The board is made by hand and has every state; `tests/proof` asks the same of a running service.
"""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain

import pytest

from checks.blocks import StateSince, TableState
from checks.model import Outcome, Ruling, Verdict, Verified
from checks.readiness import ReadinessState
from demo.processes import wait_until
from monitor.board import BackfillView, Board, CopyView, TableView
from monitor.observe.system_checks import IMAGE, OF_COPIES
from monitor.web.metrics import CONTENT_TYPE, encode_metrics
from pipeline.image import Image
from pipeline.lags.lag import HopLag
from pipeline.model import Hop, Stage
from pipeline.sources.source import LogBacklog
from tests.grafana.answers import left_of, troubles
from tests.grafana.expressions import of_alerts, of_recordings
from tests.grafana.prometheus import Prometheus, scraping
from tests.monitor import boards

SOON = timedelta(minutes=4)
KINDS_OF_ITS_OWN = ("lag", "hold", "gap", "disagreement", IMAGE, *OF_COPIES)


def _now() -> datetime:
    return datetime.now(UTC)


def _full() -> Board:
    """A board with every state and outcome, and verdicts of the service's own."""
    states = [
        boards.view(f"shop.{state}", state, seconds=(1.0, 2.0, 3.0))
        for state in ReadinessState
        if state is not ReadinessState.UNKNOWN
    ]
    views = (*states, boards.UNKNOWN, boards.READY, boards.LOST)
    return replace(
        boards.board(*(_with_own(view) for view in views), incidents=(boards.incident(),)),
        at=_now(),
        changes={("shop.users", term): 7 for term in ("read", "applied", "noop", "ignored:purge")},
        headroom={("topic", "shop.shop.users"): timedelta(hours=40)},
        backfills=(BackfillView("shop.users", "read again", 7, _now(), 1.0, 9.0, ("rate",)),),
        retired=(StateSince("shop.old", TableState.RETIRED, _now()),),
        backlogs={"shop": LogBacklog("sluice_shop", 2**40, held=2**30, left=2**31)},
        ledger={
            ("shop.users", "collection"): 2,
            ("shop.users", "landing"): 4,
            ("shop.users", "merge"): 3,
            ("shop.users", "copy:cache"): 1,
            (boards.LOST.table.name, "merge"): 0,
        },
    )


def _with_own(view: TableView) -> TableView:
    """All is well with it but for the lost one, of which samples are old, too."""
    lost = view is boards.LOST
    told = Ruling(Outcome.FAIL, "wrong") if lost else Ruling(Outcome.PASS, "fine")
    name = view.table.name
    own = tuple(Verdict(name, check, told, _now(), value=0.0) for check in KINDS_OF_ITS_OWN)
    image = Image(boards.CUT, 4, 12, (), {}, _now(), _now() + timedelta(days=7), rows=7)
    late = timedelta(seconds=30) if lost else timedelta()
    hops = tuple(replace(hop, age=hop.age + late if hop.age else None) for hop in view.lags.hops)
    lags = replace(view.lags, hops=hops)
    copy = CopyView(
        "cache", HopLag(Hop.COPY, timedelta(seconds=2), _now(), timedelta()), view.day[Stage.MIRROR]
    )
    more = (*view.verdicts, *own)
    budget = timedelta(minutes=5)
    return replace(
        view,
        lags=lags,
        verdicts=more,
        images=(image,),
        copies=(copy,),
        budget=budget,
        verified=Verified(_now(), _now() - timedelta(days=1), 7, "values"),
    )


class _Scraped(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer as the service does."""
        text = encode_metrics(_full(), _now())
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture(scope="module")
def exposed() -> Iterator[str]:
    """The address that is scraped."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Scraped)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def prometheus(exposed: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraping(exposed, tmp_path_factory.mktemp("prometheus")) as found:
        yield found


@pytest.mark.stack
def test_no_query_errs_and_none_is_empty(prometheus: Prometheus) -> None:
    tables = ("shop.users", boards.LOST.table.name)
    assert left_of(lambda: [troubles(prometheus, *tables)], SOON) == {}


@pytest.mark.stack
def test_a_query_that_is_wrong_or_finds_nothing_is_told(prometheus: Prometheus) -> None:
    assert prometheus.ask("sluice_readiness{").error
    assert prometheus.ask("sluice_no_such_metric").samples == 0
    there, well = (troubles(prometheus, "shop.no_such_table", well=one) for one in (False, True))
    assert {"Lag by hop", "Age of the samples"} <= titles(there)
    assert "Lag by hop" in titles(well)
    assert "Age of the samples" not in titles(well), "which are listed once they are old"


def titles(places: Iterable[str]) -> set[str]:
    """Of the panels of a table's dashboard that are among *places*."""
    board = "dashboards/table.json: "
    own = (place.removeprefix(board) for place in places if place.startswith(board))
    return {place.rpartition(" ")[0] for place in own}


@pytest.mark.stack
def test_f122_the_label_task_is_ours_and_none_is_renamed(prometheus: Prometheus) -> None:
    assert {"watch", "land", "merge"} <= prometheus.labels("task")
    assert prometheus.labels("exported_job") == set()


@pytest.mark.stack
def test_every_rule_is_loaded_and_healthy(prometheus: Prometheus) -> None:
    found = prometheus.rules()

    expected = {query.place for query in chain(of_recordings(), of_alerts())}
    assert {rule["name"] for rule in found} == expected
    assert {rule["name"]: rule.get("lastError") for rule in found if rule["health"] == "err"} == {}


@pytest.mark.stack
def test_a_loss_on_the_board_is_an_alert_in_prometheus(prometheus: Prometheus) -> None:
    wait_until(lambda: boards.LOST.table.name in find_lost_tables(prometheus), SOON, "an alert")

    assert boards.READY.table.name not in find_lost_tables(prometheus)


def find_lost_tables(prometheus: Prometheus) -> set[str]:
    """Tables of which the rule of losses tells."""
    (rule,) = (rule for rule in prometheus.rules() if rule["name"] == "SluiceLostCheck")
    return {alert["labels"]["table"] for alert in rule["alerts"]}

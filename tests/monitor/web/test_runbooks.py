import asyncio
import re
from pathlib import Path

import httpx
import pytest

from monitor.web.problems import Api
from monitor.web.status_page import DOCS, RUNBOOK_ROUTES, runbook_link
from tests.docs.markdown import PAGES, anchors


def get(path: str) -> httpx.Response:
    app = Api(routes=RUNBOOK_ROUTES.routes)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sluice") as client:
            return await client.get(path)

    return asyncio.run(ask())


SERVED = [page for page in PAGES if page.is_relative_to(DOCS)]
HREF = re.compile(r'(?:href|src)="([^"]*)"')


def test_each_page_of_the_docs_is_served_with_an_anchor_for_each_of_its_headings() -> None:
    for page in SERVED:
        text = served(page)
        missing = [one for one in anchors(page) if f'id="{one}"' not in text]
        assert missing == [], page


def test_each_link_of_a_served_page_leads_to_what_is_served() -> None:
    texts = {page: served(page) for page in SERVED}
    for page, text in texts.items():
        for target in HREF.findall(text.partition("<body>")[2]):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if target in ("../", "./"):  # the status page
                continue
            if file.suffix == ".png":
                assert get(f"/{file.relative_to(DOCS)}").status_code == 200, (page, target)
            else:
                assert file in texts, (page, target)
                assert not anchor or f'id="{anchor}"' in texts[file], (page, target)


def test_a_link_to_what_is_not_served_becomes_text() -> None:
    text = served(DOCS / "guides" / "readiness-gate-and-airflow.md")

    assert "airflow_gate.py" in text
    assert "examples/" not in "".join(HREF.findall(text))


def served(page: Path) -> str:
    answer = get(f"/{page.relative_to(DOCS)}")
    assert answer.status_code == 200, page
    return answer.text


@pytest.mark.parametrize(
    ("runbook", "href"),
    [
        pytest.param("https://wiki/r/late.md#lag", "https://wiki/r/late.md#lag", id="elsewhere"),
        pytest.param("docs/runbooks/late.md#lag", "runbooks/late.md#lag", id="the service's own"),
        pytest.param("docs/runbooks/nothing.md", "", id="a page that is not there"),
        pytest.param("javascript:alert(1)", "", id="no address"),
    ],
)
def test_a_link_leads_somewhere_or_is_none(runbook: str, href: str) -> None:
    assert runbook_link(runbook) == href


@pytest.mark.parametrize(
    ("path", "status"),
    [("/runbooks/nothing.md", 404), ("/runbooks/..%2Fddl.md", 400), ("/x.md", 404)],
)
def test_what_is_no_page_is_not_found(path: str, status: int) -> None:
    assert get(path).status_code == status

import asyncio

import httpx
import pytest

from monitor.web.problems import Api
from monitor.web.status_page import DOCS, RUNBOOK_ROUTES, link
from tests.docs.markdown import anchors


def get(path: str) -> httpx.Response:
    app = Api(routes=RUNBOOK_ROUTES.routes)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sluice") as client:
            return await client.get(path)

    return asyncio.run(ask())


@pytest.mark.parametrize("page", sorted(path.name for path in (DOCS / "runbooks").glob("*.md")))
def test_each_runbook_is_a_page_with_an_anchor_for_each_of_its_sections(page: str) -> None:
    answer = get(f"/{link(f'docs/runbooks/{page}#x').partition('#')[0]}")

    assert answer.status_code == 200
    missing = [one for one in anchors(DOCS / "runbooks" / page) if f'id="{one}"' not in answer.text]
    assert missing == []


def test_what_a_runbook_leads_to_is_there() -> None:
    mirror = "guides/restore-a-mirror.md"

    assert f'<a href="../{mirror}#rebuild-a-mirror">' in get("/runbooks/blocked.md").text
    assert 'id="rebuild-a-mirror"' in get(f"/{mirror}").text


@pytest.mark.parametrize(
    "page",
    [
        str(path.relative_to(DOCS))
        for folder in ("concepts", "guides")
        for path in sorted((DOCS / folder).glob("*.md"))
    ],
)
def test_each_guide_and_concept_is_a_page(page: str) -> None:
    assert get(f"/{page}").status_code == 200


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
    assert link(runbook) == href


@pytest.mark.parametrize(
    ("path", "status"),
    [("/runbooks/nothing.md", 404), ("/runbooks/..%2Fddl.md", 400), ("/x.md", 404)],
)
def test_what_is_no_page_is_not_found(path: str, status: int) -> None:
    assert get(path).status_code == status

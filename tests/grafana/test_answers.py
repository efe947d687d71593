from tests.grafana.answers import UNFILLED
from tests.grafana.expressions import of_panels, of_recordings, of_values


def test_what_may_be_empty_is_a_query_that_there_is() -> None:
    places = {query.place for query in (*of_panels(), *of_recordings(), *of_values())}

    assert UNFILLED.keys() <= places

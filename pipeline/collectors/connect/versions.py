"""Is a connector's plugin one that loses nothing that is known to get lost?  Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.finding import REFUSE, WARN, Finding

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class LeastVersion:
    """The first minor version without a known loss, and what those before it do."""

    major: int
    minor: int
    why: str


def version_findings(
    least: LeastVersion | None, config: Mapping[str, str], plugins: Sequence[Any], where: str
) -> list[Finding]:
    """Rule on the version of the connector's class among *plugins*, as Connect lists them.

    Where it lists several, the newest counts, as Connect takes that one if nobody says otherwise.
    """
    if least is None:
        return []
    of = config.get("connector.class", "")
    listed = [one for one in plugins if isinstance(one, Mapping) and one.get("class") == of]
    told = [match for one in listed if (match := _NUMBERS.match(str(one.get("version"))))]
    fix = f"install Debezium's plugin {least.major}.{least.minor} or newer, restart the workers"
    if not told:
        what = f"the version of its plugin is not told; before {least.major}.{least.minor}: "
        return [Finding(WARN, "plugin_version", where, what + least.why, fix)]
    newest = max((int(one[1]), int(one[2])) for one in told)
    if newest >= (least.major, least.minor):
        return []
    what = f"plugin {newest[0]}.{newest[1]}: {least.why}"
    return [Finding(REFUSE, "plugin_version", where, what, fix)]

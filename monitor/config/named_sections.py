"""What do the sections of a part say whose names are plug-ins'?  Each built, or why it is not."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from monitor.config.names import elsewhere
from monitor.config.plans import SectionPlace, read


def built(
    find: Callable[[str], type], needs: type, named: Mapping[str, Any], place: SectionPlace
) -> Iterator[tuple[str, Any | None, list[str]]]:
    """Name, what stands there (as *needs*, a protocol, says) or None, and faults by their places.

    *find* knows the class of a name, *named* has the sections of the part that stands at *place*.
    """
    _, unknown = elsewhere(find, named, needs)
    for name, section in named.items():
        at = f"{place.at}.{name}"
        if name in unknown:
            yield name, None, [f"{at}: {unknown[name]}"]
        elif not isinstance(section, Mapping):
            yield name, None, [f"{at}: must be a mapping of settings; see docs/guides"]
        else:
            yield (name, *read(find(name), section, SectionPlace(at, place.folder)))

"""Which old versions of mirrors may somebody still be reading?"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from monitor.store.certificates import Certificates
from pipeline.model import Stage

READING = timedelta(days=1)  # a job that was told READY has read what it was told by then
MOST = 10_000


def named_versions(certificates: Certificates, clock: Callable[[], datetime]) -> Mapping[str, int]:
    """Table -> oldest version that a certificate of the last day names and that still holds."""
    since, oldest = clock() - READING, dict[str, int]()
    for one in certificates.list(stage=Stage.MIRROR, limit=MOST):
        version = one.evidence.version
        if one.revoked is None and one.issued >= since and version is not None:
            oldest[one.table] = min(version, oldest.get(one.table, version))
    return oldest

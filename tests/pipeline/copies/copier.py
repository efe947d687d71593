"""A process that keeps a copy of `db.t` up to its mirror, again and again, until it is killed."""

import sys
import time

from pipeline.apply.table_format import Mirrors
from pipeline.copies.copy import CopiedVersion, Copy
from pipeline.copies.postgres import PostgresCopy
from pipeline.copies.redis import RedisCopy
from pipeline.copies.sync import CopySync
from pipeline.errors import SluiceError
from pipeline.settings import PipelineSettings
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.pipeline.copies.copied import TABLE

AGAIN = 0.01


def keep(lake: str, copy: Copy) -> None:
    """As the service's job does; whoever does not answer is asked again."""
    settings = PipelineSettings(lake=lake, kafka="", sources=())
    target = copy.opened(lake)
    copying = CopySync(target, Mirrors(settings, DeltaMirrors(None)), count=require_same)
    while True:
        try:
            copying.bring(TABLE, target.positions().get(TABLE.name))
        except SluiceError as error:
            sys.stderr.write(f"{error}\n")
        time.sleep(AGAIN)


def require_same(_: str, done: CopiedVersion) -> None:
    """Require that it was counted as the merge has."""
    assert done.changed in (None, done.taken), done


if __name__ == "__main__":
    kind, lake, port = sys.argv[1:]
    copies: dict[str, Copy] = {
        "postgres": PostgresCopy("127.0.0.1", "postgres", "postgres", int(port)),
        "redis": RedisCopy("127.0.0.1", int(port)),
    }
    keep(lake, copies[kind])

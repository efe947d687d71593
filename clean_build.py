"""The step of a build that collects modules, begun with an empty folder.

setuptools packs whatever is in `build/lib`, also modules of an earlier build that are gone since;
each one left in `monitor/commands` would be a verb.
"""

import logging
import shutil
from pathlib import Path

from setuptools.command.build_py import build_py


class CleanBuild(build_py):  # type: ignore[misc]
    """Deletes what an earlier build has left in the project's own `build/lib`, nowhere else."""

    editable_mode: bool

    def run(self) -> None:
        """Collect the modules that there are now."""
        if not self.editable_mode:
            empty(Path(self.build_lib))
        super().run()


def empty(folder: Path) -> None:
    """Delete *folder* if it is the project's own; else tell what that means.

    Raises:
        OSError: it cannot be deleted.
    """
    if not folder.exists():
        return
    if folder.resolve() == Path.cwd().resolve() / "build" / "lib":
        shutil.rmtree(folder)
    elif any(folder.iterdir()):
        told = "%s is not the project's build/lib and is not emptied: what is in it is packed, too"
        logging.getLogger(__name__).warning(told, folder)

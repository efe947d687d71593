"""The step of a build that collects modules, begun with an empty folder.

setuptools packs whatever is in `build/lib`, also modules of an earlier build that are gone since;
each one left in `monitor/commands` would be a verb.
"""

import shutil

from setuptools.command.build_py import build_py


class CleanBuild(build_py):
    """Deletes what an earlier build has left."""

    editable_mode: bool

    def run(self) -> None:
        """Collect the modules that there are now."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()

"""The home of Spark on this machine: the installed pyspark, in a way that its Python processes start quickly.

Spark puts `python/lib/pyspark.zip` of its home before everything else on the path of its Python processes, and Python
compiles what it imports out of a zip anew in every process. Each streaming query starts such a process, so each would
begin half a second later. Therefore the home is a directory of links to what Spark runs, without `python`: Spark's
processes find the installed pyspark then, which is compiled. What a local cluster writes beside its jars goes there
too, and not among the installed packages.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import sysconfig
import tempfile
from pathlib import Path


@functools.cache
def spark_home() -> Path:
    """Where Spark has its jars and scripts."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    if installed.parent not in {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}:
        # Another Python process would not find it but through the zip.
        return installed
    home = Path(tempfile.mkdtemp(prefix="headrace-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return link_home(home, installed)


def link_home(home: Path, installed: Path) -> Path:
    """Put links to what Spark needs of an installation into an empty directory."""
    for name in ("bin", "conf", "jars"):
        if (installed / name).exists():
            (home / name).symlink_to(installed / name, target_is_directory=True)
    return home

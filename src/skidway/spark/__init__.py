"""Topics as a Spark source and sink, and ready pipelines: the only package that imports pyspark, pyarrow or numba.

Imported before the first session, it has Spark's workers run the Python that runs the driver. Spark itself would start
whatever `python3` is on the PATH, which is another one wherever an environment was not activated; that one has no
Skidway, and Spark answers DATA_SOURCE_NOT_FOUND. PYSPARK_PYTHON wins where it is set. Imported when a session runs
already, it is too late: Spark's JVM keeps the Python it was started with. Then a warning says what to do.
"""

import os
import shutil
import sys
import warnings


def _warn_of_another_python() -> None:
    """If a session runs whose workers are started with another Python than this one."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    running = getattr(context, "_active_spark_context", None)
    if running is None or "PYSPARK_PYTHON" in os.environ:
        return
    found = shutil.which(running.pythonExec)
    # Not where the links lead: the Python of every environment is a link to the same file.
    if found is None or os.path.dirname(found) != os.path.dirname(sys.executable):
        warnings.warn(
            "skidway.spark was imported after the Spark session had started, so Spark runs"
            f" {found or running.pythonExec} and not {sys.executable}, and may answer DATA_SOURCE_NOT_FOUND:"
            " import skidway.spark before the first session, or set PYSPARK_PYTHON,"
            " and start the program (the kernel, in a notebook) again",
            stacklevel=3,
        )


_warn_of_another_python()

# Not PYSPARK_DRIVER_PYTHON too: Spark would start that one on executors as well, for sources it finds by name.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

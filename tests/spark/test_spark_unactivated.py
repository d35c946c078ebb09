"""The README's example from an environment that was not activated: `python3` on the PATH is another Python."""

import os
import subprocess
import sys
from pathlib import Path

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.producer import Producer
from skidway.testing import Broker
from waiting import SPARK_PATIENCE_S

README = Path(__file__).parents[2] / "README.md"
OF_AN_ENVIRONMENT = ("VIRTUAL_ENV", "PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")


def other_python(folder: Path) -> Path:
    """A `python3` without Skidway, in a folder of its own."""
    folder.mkdir()
    command = folder / "python3"
    command.symlink_to(Path(sys.base_prefix, "bin", "python3").resolve())
    return command


def test_the_example_of_the_readme_needs_no_activated_environment(broker: Broker, tmp_path: Path) -> None:
    python = other_python(tmp_path / "bin")
    environment = {name: value for name, value in os.environ.items() if name not in OF_AN_ENVIRONMENT}
    environment["PATH"] = f"{python.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    lacking = subprocess.run([python, "-c", "import skidway"], env=environment, capture_output=True, check=False)
    assert lacking.returncode != 0, "this Python was to be one without Skidway"

    section = README.read_text().split("\n## From Spark\n", 1)[1].split("\n## ", 1)[0]
    script = tmp_path / "example.py"
    code = section.split("```python\n", 1)[1].split("```", 1)[0]
    script.write_text(code.replace("127.0.0.1:9092", broker.bootstrap).replace('"orders"', '"unactivated"'))
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("unactivated", partitions=1)
        Producer(cluster).send_now("unactivated", b"three apples", key=b"ann")
    done = subprocess.run(
        [sys.executable, script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SPARK_PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert "three apples" in done.stdout

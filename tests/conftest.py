"""For all tests: this directory's modules can be imported, and no test fails because the machine is slow."""

import re
import signal
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tiers import TESTS, Skips, SlowList, choices

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("settled", settings.get_profile("patient"), derandomize=True)
settings.load_profile("settled")

JOIN_GROUP = 11

CHAOS_TIMEOUT_S = 3600


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--listed-skips",
        action="store_true",
        help="fail when a test is skipped for a reason that tests/skips.txt does not list",
    )
    parser.addoption("--failed-to", metavar="FILE", help="write the tests that failed into a file, for tests/again.py")


def pytest_configure(config: pytest.Config) -> None:
    """Generated examples are the same in every `make test`; `make chaos` draws others each time.

    Where tests run with SIGINT ignored (`nohup make test &`, some CI runners), the processes they start would ignore
    it too, and tests that interrupt them would wait in vain.
    """
    if config.inipath is None or config.inipath.name != "pytest.ini":
        raise pytest.UsageError("name what to run, so that tests/pytest.ini counts: pytest tests, or make test")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.markexpr == "chaos":
        settings.load_profile("patient")
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Groups(), "skidway-groups")
    if config.option.listed_skips and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipCount(config), "skidway-skips")
    if config.option.failed_to and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailedTests(config), "skidway-failed")


def place_of(node_id: str, config: pytest.Config) -> str:
    """A test as tests/slow.txt and tests/skips.txt name it. pytest begins its ids below the folder of its settings."""
    return f"{TESTS.name}/{node_id}" if config.rootpath == TESTS else node_id


class Groups:
    """Keeps the tests of an xdist_group in one worker, so that never two clusters or storms share the cores.

    xdist 3.8 names the group behind the node id, in an attribute that pytest 9.2 does not read any more: every worker
    started a cluster of its own, and no warning said so.
    """

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            named = getattr(item, "_nodeid", item.nodeid)
            if named != item.nodeid:
                item._id = type(item.id).parse(named)


class SkipCount:
    """Fails a run in which a test was skipped for a reason that nobody wrote down: it checked nothing."""

    def __init__(self, config: pytest.Config) -> None:
        self.skips = Skips()
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skips.note(place_of(report.nodeid, self.config), report.longrepr[2])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skips.unlisted and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.skips.unlisted:
            terminalreporter.write_line(f"SKIPPED for a reason that tests/skips.txt does not list: {line}", red=True)


class FailedTests:
    """Writes down which tests failed, a line each. An empty file: the run failed because of something else."""

    def __init__(self, config: pytest.Config) -> None:
        self.path = Path(config.option.failed_to)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("")
        self.config = config
        self.names: dict[str, None] = {}
        self.collected = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names[place_of(re.sub(r"@[^\[\]]*$", "", report.nodeid), self.config)] = None  # without its group

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.collected = self.collected and not report.failed

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        skips = self.config.pluginmanager.get_plugin("skidway-skips")
        only_tests = self.collected and not (isinstance(skips, SkipCount) and skips.skips.unlisted)
        if session.exitstatus == pytest.ExitCode.OK:
            self.path.unlink()
        elif session.exitstatus == pytest.ExitCode.TESTS_FAILED and only_tests:
            self.path.write_text("".join(f"{name}\n" for name in self.names))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without the slow tests a file that has no others is not imported: every worker would do it."""
    if "not slow" not in config.option.markexpr or TESTS not in collection_path.parents:
        return None
    place = f"{TESTS.name}/{collection_path.relative_to(TESTS).as_posix()}"
    return slow_list().has_all_of(place) or None


@cache
def slow_list() -> SlowList:
    return SlowList(choices())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What tests/slow.txt names is marked `slow`. The long tests may take as long as a slow machine needs; the default
    bound is for the others."""
    slow = slow_list()
    for item in items:
        if place_of(item.nodeid, config) in slow:
            item.add_marker("slow")
        if item.get_closest_marker("chaos") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CHAOS_TIMEOUT_S))
        if shares_with_its_module(item) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def shares_with_its_module(item: pytest.Item) -> bool:
    """It has a fixture that is made once for its module, mostly a broker: in another worker it would be made again."""
    made = getattr(item, "_fixtureinfo", None)
    return made is not None and any(found[-1].scope == "module" for found in made.name2fixturedefs.values())


@pytest.fixture(scope="session")
def group_bootstrap(request: pytest.FixtureRequest) -> str:
    """The folder's `bootstrap`, which names a broker that has consumer groups."""
    from skidway.blocking_client.cluster import Cluster

    bootstrap: str = request.getfixturevalue("bootstrap")
    with Cluster(bootstrap) as cluster:
        assert JOIN_GROUP in cluster.any_broker().served, "the broker has no consumer groups (JoinGroup is not served)"
    return bootstrap

"""`skidway pipeline`: ready Spark pipelines over topics. Spark is imported when one is run, and not before."""

import inspect
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from skidway.cli.help.help_pages import contents
from skidway.cli.help.usage import unknown_command
from skidway.cli.options import DryRun
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    EXIT_BUSY,
    EXIT_FAILED,
    EXIT_USAGE,
    AsJson,
    Bootstrap,
    count_of,
    fail,
    friendly,
    group,
    misused,
    print_json,
    print_table,
    quantity,
    run,
)

if TYPE_CHECKING:
    from skidway.spark.pipelines import Entry
    from skidway.spark.pipelines.options import Trigger
    from skidway.spark.pipelines.status import Status

app = group("Ready Spark pipelines: archive, merge, aggregate, dedupe, route, replay, insights.")

DEFAULT_ROOT = "pipelines"
REPORT_INTERVAL_S = 10.0
RUN_PANEL = "How it runs"
# What the command line gives to Spark and not to the pipeline.
RUN_FLAGS: dict[str, Any] = {
    "trigger": Annotated[
        str,
        typer.Option(
            "--trigger",
            metavar="TIME",
            help="Run a batch this often, until stopped: 1s, 1m.",
            rich_help_panel=RUN_PANEL,
        ),
    ],
    "once": Annotated[
        bool, typer.Option("--once", help="Process what is there now, then stop.", rich_help_panel=RUN_PANEL)
    ],
    "master": Annotated[
        str,
        typer.Option(
            "--master", metavar="URL", help="The Spark cluster, e.g. spark://host:7077.", rich_help_panel=RUN_PANEL
        ),
    ],
    "conf": Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; repeatable.", rich_help_panel=RUN_PANEL),
    ],
    "metrics": Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Answer Prometheus here while the pipeline runs.",
            rich_help_panel=RUN_PANEL,
        ),
    ],
    "lineage": Annotated[
        str | None,
        typer.Option(
            "--lineage",
            metavar="URL|FILE",
            help="Send OpenLineage events of the run here, or append them to a file.",
            rich_help_panel=RUN_PANEL,
        ),
    ],
    "config": Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="A TOML file with options by these names.", rich_help_panel=RUN_PANEL
        ),
    ],
}
RUN_PROGRAM = "skidway pipeline run"
RUN_EPILOG = "skidway pipeline run NAME --help lists the options of a pipeline."
SHORT = {"topic": ("-t",), "bootstrap": ("-b",)}
PLACEHOLDERS = {"topic": "TOPIC", "bootstrap": "HOST:PORT[,…]", "path": "PATH"}
RUN_DEFAULTS: dict[str, Any] = {
    "trigger": "1s",
    "once": False,
    "master": "local[*]",
    "conf": None,
    "metrics": None,
    "lineage": None,
    "config": None,
}
STREAMS_ONLY = ("trigger", "once", "metrics", "lineage")


@app.command("list", epilog="Example: skidway pipeline list")
@friendly
def list_pipelines(as_json: AsJson = False) -> None:
    """List the pipelines there are; `skidway pipeline run NAME --help` shows the options of one."""
    from skidway.spark.pipelines import CATALOGUE

    if as_json:
        print_json([{"name": name, "summary": entry.summary} for name, entry in CATALOGUE.items()])
    else:
        print_table(("pipeline", "what it does"), [(name, entry.summary) for name, entry in CATALOGUE.items()])


@app.command(epilog="Example: skidway pipeline init shop --topic orders")
@friendly
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the project.")],
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic to read.")] = "events",
    out: Annotated[
        str | None, typer.Option("--out", metavar="TOPIC", help="The topic to write. Default: TOPIC-out.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write a small project for Spark's Declarative Pipelines: a table, a view and a sink."""
    from skidway.spark.pipelines.options import BadPipeline
    from skidway.spark.pipelines.project import create

    try:
        for path in create(folder, bootstrap=bootstrap, topic=topic, out=out or f"{topic}-out"):
            typer.echo(f"wrote {path}")
    except BadPipeline as error:
        fail(str(error))
    typer.echo(f"next: cd {folder} && SPARK_CONF_DIR=$PWD/conf spark-pipelines run")


@app.command(epilog="Example: skidway pipeline status")
@friendly
def status(
    folder: Annotated[
        Path, typer.Argument(help="A checkpoint folder, or one with several of them.", show_default=True)
    ] = Path(DEFAULT_ROOT),
    as_json: AsJson = False,
) -> None:
    """Show the state of pipelines that run or ran: batches, records, lag, the last error."""
    from dataclasses import asdict

    from skidway.spark.pipelines.status import read_all

    found = read_all(folder)
    if as_json:
        print_json([{"folder": str(where), **asdict(one)} for where, one in found])
        return
    if not found:
        typer.echo(f"no pipeline has run with its checkpoint in {folder}", err=True)
        return
    columns = ("name", "pipeline", "topics", "state", "batches", "records", "lag", "last batch", "updated")
    rows = [
        (
            one.name,
            one.pipeline,
            ",".join(one.topics),
            one.state,
            quantity(one.batches),
            quantity(one.records),
            "-" if one.lag is None else quantity(one.lag),
            "-" if one.last_batch < 0 else f"{one.last_batch} ({one.last_batch_ms} ms)",
            _ago(one.updated_ms),
        )
        for _, one in found
    ]
    print_table(columns, rows, right=("batches", "records", "lag"))
    for where, one in found:
        if one.counts:
            typer.echo(f"{where}: " + ", ".join(f"{name} {quantity(count)}" for name, count in one.counts.items()))
        if one.error:
            typer.echo(f"{where}: {one.error}")


@app.command(epilog="Example: skidway pipeline maintain lake/orders --dry-run")
@friendly
def maintain(
    path: Annotated[str, typer.Argument(help="Where the table is, as `archive --path` has it.")],
    catalog: Annotated[str | None, typer.Option("--catalog", metavar="TEXT", help="As `archive` has it.")] = None,
    table: Annotated[str | None, typer.Option("--table", metavar="TEXT", help="As `archive` has it.")] = None,
    store_option: Annotated[
        list[str] | None, typer.Option("--store-option", metavar="NAME=VALUE", help="As `archive` has it.")
    ] = None,
    keep_hours: Annotated[
        int, typer.Option("--keep-hours", metavar="N", help="Delta: how old a version may be and still be read.")
    ] = 168,
    keep_snapshots: Annotated[
        int, typer.Option("--keep-snapshots", metavar="N", help="Iceberg: how many snapshots stay.")
    ] = 100,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge small files, expire snapshots, delete what no reader reaches. Pipelines may run meanwhile."""
    from dataclasses import asdict

    with _refusals():
        from skidway.spark.lake import Target
        from skidway.spark.lake.maintenance import kind_of
        from skidway.spark.lake.maintenance import maintain as care_for
        from skidway.spark.pipelines.options import pairs

        options = pairs(store_option or [], "--store-option")
        target = Target(path, kind_of(path, catalog), catalog=catalog, table=table, store_options=options)
        care = care_for(target, dry_run=dry_run, keep_hours=keep_hours, keep_snapshots=keep_snapshots)
    if as_json:
        print_json(asdict(care))
        return
    after = "" if care.files_after is None else f" -> {quantity(care.files_after)}"
    would = "would be " if dry_run else ""
    typer.echo(
        f"data files {quantity(care.files_before)}{after}; {count_of(care.expired, 'snapshot')} {would}expired,"
        f" {count_of(care.deleted, 'file')} {would}deleted"
    )


@app.command(
    "run",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    epilog="Example: skidway pipeline run archive --topic orders --path lake/orders --once",
)
@friendly
def run_pipeline(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The pipeline; `skidway pipeline list` lists them.")] = "",
) -> None:
    """Run a pipeline until it is stopped, or --once. `skidway pipeline run NAME --help` shows its options."""
    from skidway.spark.pipelines import CATALOGUE

    if name in ("", "--help", "-h"):
        summaries = {known: entry.summary for known, entry in CATALOGUE.items()}
        page = contents("Run a pipeline until it is stopped, or --once.", summaries, epilog=RUN_EPILOG)
        run(page, RUN_PROGRAM, ["--help"])
        raise typer.Exit(0 if name else EXIT_USAGE)
    if name not in CATALOGUE:
        misused(unknown_command(RUN_PROGRAM, name, [], list(CATALOGUE)))
    command = _command(name, CATALOGUE[name])
    one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    one.command(epilog=f"Example: {EXAMPLES[name]}")(command)
    code = run(one, f"{RUN_PROGRAM} {name}", list(context.args))
    if code:
        raise typer.Exit(code)


EXAMPLES = {
    "archive": "skidway pipeline run archive --topic orders --path lake/orders --format delta",
    "merge": "skidway pipeline run merge --topic shop.orders --path lake/orders --schema 'id bigint, name string'",
    "aggregate": "skidway pipeline run aggregate --topic orders --group-by country --measure sum:amount --to-topic s",
    "dedupe": "skidway pipeline run dedupe --topic orders --id event_id --to-topic orders-once",
    "route": "skidway pipeline run route --topic orders --schema 'amount double' --route 'big: data.amount > 100'",
    "replay": "skidway pipeline run replay --topic orders --since 2026-01-31T12:00Z --to-topic orders-again",
    "insights": "skidway pipeline run insights --topic orders --path insights --once",
}


def _command(name: str, entry: "Entry") -> Callable[..., None]:
    """A command whose flags are the fields of the pipeline's options: they are told in one place only."""
    pipeline, options = entry.load()
    types_of = get_type_hints(options)
    flags: dict[str, Any] = {}
    for one in fields(options):
        required = one.default is MISSING and one.default_factory is MISSING
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        told = one.metadata["help"] + (" (required)" if required else "")
        if not required and default not in (None, "", [], False):
            told += f" Default: {', '.join(default) if isinstance(default, list) else default}."
        names = [f"--{one.name.replace('_', '-')}", *SHORT.get(one.name, ())]
        variable = "SKIDWAY_BOOTSTRAP" if one.name == "bootstrap" else None
        flags[one.name] = Annotated[
            _flag_type(types_of[one.name]),
            typer.Option(
                *names,
                metavar=_placeholder(one.name, types_of[one.name]),
                help=told,
                envvar=variable,
                show_default=False,
            ),
        ]
    streams = hasattr(pipeline, "start")
    running = {key: flag for key, flag in RUN_FLAGS.items() if streams or key not in STREAMS_ONLY}

    @friendly
    def command(**given: Any) -> None:
        chosen = {key: given.pop(key, RUN_DEFAULTS[key]) for key in RUN_DEFAULTS}
        _run(pipeline, options, {key: value for key, value in given.items() if value not in (None, [])}, chosen)

    parameters = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=flag)
        for key, flag in flags.items()
    ] + [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=RUN_DEFAULTS[key], annotation=flag)
        for key, flag in running.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {**flags, **running}
    command.__doc__ = f"{entry.summary[0].upper()}{entry.summary[1:]}."
    return command


def _flag_type(wanted: Any) -> Any:
    """Every flag may be left out: the TOML file may have it."""
    if get_origin(wanted) in (Union, types.UnionType):
        wanted = next(kind for kind in get_args(wanted) if kind is not type(None))
    return wanted | None


def _placeholder(name: str, wanted: Any) -> str | None:
    """What stands for the value on the help page; a flag has none."""
    kind = str(wanted)
    if "bool" in kind:
        return None
    return PLACEHOLDERS.get(name, "N" if "int" in kind or "float" in kind else "TEXT")


def _run(pipeline: Any, options: Any, given: dict[str, Any], chosen: dict[str, Any]) -> None:
    from skidway.spark.pipelines.checkpoints import check_local
    from skidway.spark.pipelines.holding import hold_checkpoint
    from skidway.spark.pipelines.options import ONCE, Trigger, from_texts, pairs, parse_duration_ms
    from skidway.spark.pipelines.status import check_own, status_folder

    with _refusals():
        wanted = from_texts(options, {**_from_file(chosen["config"]), **given})
        trigger = ONCE if chosen["once"] else Trigger(parse_duration_ms(chosen["trigger"]))
        settings = pairs(chosen["conf"] or [], "--conf")
        if hasattr(pipeline, "start"):
            check_local(wanted.folder(pipeline.name))
            check_own(status_folder(wanted.folder(pipeline.name), pipeline.name), pipeline.name, wanted.topic)
        see = _lineage(chosen["lineage"], wanted)
        ready = pipeline(wanted)
        if hasattr(ready, "holding"):
            # Before Spark starts: another driver's end may take a while.
            ready.holding = hold_checkpoint(ready.name, wanted)
    with _refusals(), _metrics(chosen["metrics"]), _spark(ready.name, chosen["master"], settings) as session:
        if getattr(wanted, "redo_rejected", False):
            _redo(ready, session)
        elif hasattr(ready, "start"):
            _run_stream(ready, session, trigger, see)
        else:
            typer.echo(f"{count_of(ready.run(session), 'record')} written to {ready.options.to_topic}")


def _from_file(path: Path | None) -> dict[str, Any]:
    import tomllib

    from skidway.spark.pipelines.options import BadPipeline

    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise BadPipeline(f"{path} is not valid TOML: {error}") from None


@contextmanager
def _refusals() -> Iterator[None]:
    """What a pipeline, a table or a folder refuses is the user's to change."""
    from skidway.spark.folders import BadFolder
    from skidway.spark.lake import BadTable
    from skidway.spark.lease.keeping import Busy
    from skidway.spark.pipelines.options import BadPipeline

    try:
        yield
    except Busy as error:
        fail(str(error), EXIT_BUSY)
    except (BadPipeline, BadTable, BadFolder) as error:
        fail(str(error), 2)


@contextmanager
def _metrics(address: str | None) -> Iterator[None]:
    """Listening before Spark starts, so that an address that cannot be is told at once."""
    if address is None:
        yield
        return
    from skidway.spark.pipelines.metrics import serve

    listener = serve(address)
    try:
        yield
    finally:
        listener.close()


@contextmanager
def _spark(name: str, master: str, settings: dict[str, str]) -> Iterator[Any]:
    from skidway.spark.java import NoJava
    from skidway.spark.session import build

    try:
        session = build(f"skidway {name}", master=master, configuration=settings, say=_say)
    except NoJava as error:
        fail(str(error))
    try:
        yield session
    finally:
        session.stop()


def _redo(ready: Any, session: Any) -> None:
    from skidway.spark.pipelines.running import in_one_line, is_lost

    try:
        done = ready.redo(session)
    except Exception as error:
        fail(f"{ready.name} failed: {in_one_line(error)}", EXIT_BUSY if is_lost(ready) else EXIT_FAILED)
    there = f", {quantity(done.there)} already in the table" if done.there else ""
    early = f", {quantity(done.early)} left: run the archive first, it ended within their batch" if done.early else ""
    reasons = "".join(f", {reason} {quantity(count)}" for reason, count in sorted(done.reasons.items()))
    typer.echo(
        f"{ready.name}: {count_of(done.read, 'rejected record')} read again, {quantity(done.added)} added{there},"
        f" {quantity(done.stay)} still rejected{reasons}{early}"
    )


def _lineage(place: str | None, options: Any) -> Callable[["Status"], None]:
    """What is shown the status of the run."""
    if place is None:
        return lambda status: None
    from skidway.spark.pipelines.lineage import Lineage, open_sender

    return Lineage(open_sender(place), options, _say).see


def _run_stream(ready: Any, session: Any, trigger: "Trigger", see: Callable[["Status"], None]) -> None:
    from skidway.spark.pipelines.running import Stop, is_lost, run
    from skidway.spark.pipelines.status import FAILED

    outcome: list[Status] = []

    def shown(status: "Status") -> None:
        outcome[:] = [status]
        display(status)
        see(status)

    with Stop().on_signals() as stop, _display(ready.name) as display:
        try:
            run(ready, session, trigger, stop, shown)
        except Exception:
            # What went wrong is in the status in one line; anything before a status is a bug and keeps its traceback.
            if not outcome or outcome[0].state != FAILED:
                raise
    status = outcome[0]
    if status.state == FAILED:
        code = EXIT_BUSY if is_lost(ready) else EXIT_FAILED
        fail(f"{ready.name} failed after {count_of(status.batches, 'batch')}: {status.error}", code)
    counted = "".join(f", {name} {quantity(count)}" for name, count in status.counts.items())
    read = f"{count_of(status.records, 'record')} in {count_of(status.batches, 'batch')}"
    typer.echo(f"{ready.name} {status.state}: {read}{counted}")


@contextmanager
def _display(name: str) -> Iterator[Callable[["Status"], None]]:
    """A line that changes, at a terminal; a line now and then, elsewhere."""
    if not sys.stderr.isatty():
        told_s = time.monotonic()

        def tell(status: "Status") -> None:
            nonlocal told_s
            if time.monotonic() - told_s >= REPORT_INTERVAL_S:
                told_s = time.monotonic()
                typer.echo(_line(status), err=True)

        yield tell
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{name}: starting Spark's query") as spinner:
        yield lambda status: spinner.update(_line(status))


def _line(status: "Status") -> str:
    lag = "" if status.lag is None else f", {quantity(status.lag)} behind"
    counted = "".join(f", {name} {quantity(count)}" for name, count in status.counts.items())
    return (
        f"{status.pipeline}: {status.state}, batch {status.last_batch}, {count_of(status.records, 'record')}, "
        f"{quantity(status.records_per_s)}/s{lag}{counted}"
    )


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _ago(then_ms: int) -> str:
    seconds = max(0, time.time_ns() // 1_000_000 - then_ms) // 1000
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def main(arguments: list[str]) -> int:
    return run(app, "skidway pipeline", arguments)

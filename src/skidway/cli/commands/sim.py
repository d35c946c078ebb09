"""`skidway sim`: whole clusters in one process on virtual time, with faults drawn from a seed."""

import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from skidway.cli.output import EXIT_FAILED, AsJson, count_of, friendly, group, print_json, progress, quantity, run

if TYPE_CHECKING:
    from skidway.sim.plan import Plan
    from skidway.sim.run import Verdict

app = group("Run whole clusters in a simulation that crashes, cuts and corrupts, and check what clients were promised.")

FRESH_FROM = 1_000_000_000
"""Fresh seeds are drawn from here on, up to twice as far: by hand nobody goes there."""
PROGRESS_LINE_S = 60.0
AHEAD = 2
"""Seeds for each process that are handed out before they are needed."""

Seed = Annotated[int, typer.Option("--seed", "-s", metavar="N", help="The seed to run.", min=0)]
Nodes = Annotated[
    int | None,
    typer.Option("--nodes", metavar="N", help="How many nodes. Default: as the seed draws them.", min=1, max=7),
]
Transactions = Annotated[
    bool, typer.Option("--transactions", help="Plans with transactions: short, with faults and laws of their own.")
]

Shares = Annotated[
    bool, typer.Option("--shares", help="Plans with share groups: short, with faults and laws of their own.")
]


@app.command("run", epilog="Example: skidway sim run --seeds 200 --jobs 2")
@friendly
def run_seeds(
    seeds: Annotated[int, typer.Option("--seeds", "-n", metavar="N", help="How many seeds to run.", min=1)] = 200,
    first: Annotated[int, typer.Option("--from", metavar="N", help="The first seed.", min=0)] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Draw the first seed: run seeds that nobody has run.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop at the first seed that breaks a law.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Processes. 0: one for each core.", min=0)] = 0,
    nodes: Nodes = None,
    transactions: Transactions = False,
    shares: Shares = False,
    as_json: AsJson = False,
) -> None:
    """Run many seeds; each draws its cluster, its clients and its faults. Exit code 1 when a law was broken."""
    kind = _kind(transactions, shares)
    if fresh:
        first = FRESH_FROM + secrets.randbelow(FRESH_FROM)
    if not as_json:
        command = f"skidway sim run --from {first} --seeds {seeds}{_named(kind)}"
        typer.echo(f"seeds {first} to {first + seeds - 1}: {command}")
    verdicts: list[Verdict] = []
    interrupted = False
    try:
        found = _verdicts(range(first, first + seeds), jobs or os.cpu_count() or 1, nodes, kind)
        _run_all(found, seeds, stop, verdicts, told=not as_json)
    except KeyboardInterrupt:
        interrupted = True
    verdicts.sort(key=lambda verdict: verdict.seed)
    if as_json:
        print_json([_as_json(verdict) for verdict in verdicts])
    else:
        _summarise(verdicts, _named(kind))
    if interrupted or not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(EXIT_FAILED)


def _kind(transactions: bool, shares: bool) -> str:
    """Of plans: the name of an option, or nothing."""
    if transactions and shares:
        raise typer.BadParameter("choose one of --transactions and --shares: no plan has both")
    return "transactions" if transactions else "shares" if shares else ""


def _named(kind: str) -> str:
    """As an option of a command that is told."""
    return f" --{kind}" if kind else ""


def _plan(seed: int, nodes: int | None, kind: str) -> "Plan":
    from skidway.sim.plan import draw_plan
    from skidway.sim.share_plan import draw_share_plan
    from skidway.sim.transactional_plan import draw_transactional_plan

    if kind == "transactions":
        return draw_transactional_plan(seed, nodes=nodes)
    return draw_share_plan(seed, nodes=nodes) if kind == "shares" else draw_plan(seed, nodes=nodes)


def _run_all(found: Iterator["Verdict"], count: int, stop: bool, verdicts: list["Verdict"], *, told: bool) -> None:
    """Into `verdicts`, in the order in which they end, with a line for each that breaks a law; where nobody watches a
    terminal, also one now and then about how far it is."""
    failed, next_line_s = 0, monotonic() + PROGRESS_LINE_S
    lines = told and not sys.stderr.isatty()
    with progress("seeds", count) as meter:
        for verdict in found:
            verdicts.append(verdict)
            if not verdict.ok:
                failed += 1
                if told:
                    typer.secho(f"seed {verdict.seed}: {verdict.checker}: {verdict.text.strip()}", fg=typer.colors.RED)
            meter.set(len(verdicts), f"{failed} failed")
            if lines and monotonic() >= next_line_s:
                next_line_s = monotonic() + PROGRESS_LINE_S
                typer.echo(f"{len(verdicts)} of {count_of(count, 'seed')}, {failed} broke a law", err=True)
            if stop and failed:
                return


@app.command(epilog="Example: skidway sim replay --seed 17 | less")
@friendly
def replay(seed: Seed, nodes: Nodes = None, transactions: Transactions = False, shares: Shares = False) -> None:
    """Run one seed and print what happens, line by line: the same every time."""
    from skidway.sim.run import run_plan

    plan = _plan(seed, nodes, _kind(transactions, shares))
    typer.echo(f"seed {seed}: {plan.describe()}")
    verdict = run_plan(plan, typer.echo)
    typer.echo(f"trace {verdict.trace_hash}, {verdict.virtual_s:.1f} virtual seconds")
    if not verdict.ok:
        typer.secho(f"{verdict.checker}: {verdict.text.strip()}", fg=typer.colors.RED)
        raise typer.Exit(EXIT_FAILED)
    typer.echo(f"no law was broken; {count_of(verdict.acknowledged, 'message')} acknowledged, none lost")


@app.command(epilog="Example: skidway sim shrink --seed 17")
@friendly
def shrink(seed: Seed, nodes: Nodes = None, transactions: Transactions = False, shares: Shares = False) -> None:
    """Find fewer faults and clients with which a failing seed still fails in the same way."""
    from skidway.sim.run import run_plan
    from skidway.sim.shrink import shrink as shrink_plan

    plan = _plan(seed, nodes, _kind(transactions, shares))
    verdict = run_plan(plan)
    if verdict.ok:
        typer.echo(f"seed {seed} breaks no law: nothing to shrink")
        return
    typer.echo(f"seed {seed}: {verdict.checker}: {verdict.text.strip()}")
    smallest, runs = shrink_plan(plan, verdict.checker)
    fewer = f"{len(plan.faults)} -> {count_of(len(smallest.faults), 'fault')}"
    typer.echo(f"after {count_of(runs, 'run')}: {fewer}; {smallest.describe()}")
    for fault in smallest.faults:
        typer.echo(f"  {fault.at_ms:>6} ms  {fault.kind} (target {fault.target}) for {fault.lasts_ms} ms")
    raise typer.Exit(EXIT_FAILED)


def _verdicts(seeds: range, jobs: int, nodes: int | None, kind: str) -> Iterator["Verdict"]:
    """In processes of their own: a simulation replaces the clocks of the process it runs in. Whoever stops asking ends
    them, but for the seeds that they have begun."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        left = iter(seeds)
        running = {pool.submit(_run_one, seed, nodes, kind) for seed in islice(left, jobs * AHEAD)}
        while running:
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for each in finished:
                yield each.result()
            running |= {pool.submit(_run_one, seed, nodes, kind) for seed in islice(left, len(finished))}


def _run_one(seed: int, nodes: int | None, kind: str) -> "Verdict":
    from skidway.sim.run import run_plan

    verdict = run_plan(_plan(seed, nodes, kind))
    verdict.last_lines.clear()
    return verdict


def _summarise(verdicts: list["Verdict"], option: str) -> None:
    virtual_s = sum(verdict.virtual_s for verdict in verdicts)
    cpu_s = sum(verdict.cpu_s for verdict in verdicts)
    faults: Counter[str] = Counter()
    for verdict in verdicts:
        faults.update(verdict.marks)
    failed = [verdict for verdict in verdicts if not verdict.ok]
    typer.echo(
        f"{count_of(len(verdicts), 'seed')}, {virtual_s / 3_600:.1f} virtual hours in {cpu_s / 3_600:.1f} hours of CPU "
        f"({virtual_s / max(cpu_s, 1e-9):.1f} times as fast as real time)"
    )
    typer.echo(
        f"{count_of(sum(v.acknowledged for v in verdicts), 'message')} acknowledged, "
        f"{quantity(sum(v.reads for v in verdicts))} read"
    )
    typer.echo("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(faults.items())))
    if not failed:
        typer.secho("no law was broken", fg=typer.colors.GREEN)
        return
    by_law = Counter(verdict.checker for verdict in failed)
    listed = ", ".join(f"{law} {count}" for law, count in by_law.most_common())
    typer.secho(f"{count_of(len(failed), 'seed')} broke a law: {listed}", fg=typer.colors.RED)
    for verdict in failed:
        typer.echo(f"  skidway sim replay --seed {verdict.seed}{option}  # {verdict.checker}")


def _as_json(verdict: "Verdict") -> dict[str, object]:
    return {
        "seed": verdict.seed,
        "ok": verdict.ok,
        "checker": verdict.checker,
        "text": verdict.text,
        "trace": verdict.trace_hash,
        "virtual_s": round(verdict.virtual_s, 3),
        "cpu_s": round(verdict.cpu_s, 3),
        "acknowledged": verdict.acknowledged,
        "faults": verdict.marks,
    }


def main(arguments: list[str]) -> int:
    return run(app, "skidway sim", arguments)

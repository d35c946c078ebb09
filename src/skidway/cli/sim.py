"""`skidway sim`: whole clusters in one process on virtual time, with faults drawn from a seed."""

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TYPE_CHECKING, Annotated

import typer

from skidway.cli.output import EXIT_FAILED, AsJson, friendly, group, print_json, progress, quantity, run

if TYPE_CHECKING:
    from skidway.sim.run import Verdict

app = group("Run whole clusters in a simulation that crashes, cuts and corrupts, and check what clients were promised.")

Seed = Annotated[int, typer.Option("--seed", "-s", help="Which run.", min=0)]
Nodes = Annotated[int | None, typer.Option("--nodes", help="Machines. Default: as the seed draws them.", min=1, max=7)]


@app.command("run", epilog="Example: skidway sim run --seeds 200 --jobs 2")
@friendly
def run_seeds(
    seeds: Annotated[int, typer.Option("--seeds", "-n", help="How many.", min=1)] = 200,
    first: Annotated[int, typer.Option("--from", help="The first.", min=0)] = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes. 0: one for each core.", min=0)] = 0,
    nodes: Nodes = None,
    as_json: AsJson = False,
) -> None:
    """Run many seeds; each draws its cluster, its clients and its faults. Exit code 1 when a law was broken."""
    verdicts: list[Verdict] = []
    failed = 0
    with progress("seeds", seeds) as meter:
        for verdict in _verdicts(range(first, first + seeds), jobs or os.cpu_count() or 1, nodes):
            verdicts.append(verdict)
            if not verdict.ok:
                failed += 1
                if not as_json:
                    typer.secho(f"seed {verdict.seed}: {verdict.checker}: {verdict.text.strip()}", fg=typer.colors.RED)
            meter.set(len(verdicts), f"{failed} failed")
    verdicts.sort(key=lambda verdict: verdict.seed)
    if as_json:
        print_json([_as_json(verdict) for verdict in verdicts])
    else:
        _summarise(verdicts)
    if failed:
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Example: skidway sim replay --seed 17 | less")
@friendly
def replay(seed: Seed, nodes: Nodes = None) -> None:
    """Run one seed and print what happens, line by line: the same every time."""
    from skidway.sim.plan import draw_plan
    from skidway.sim.run import run_plan

    plan = draw_plan(seed, nodes=nodes)
    typer.echo(f"seed {seed}: {plan.describe()}")
    verdict = run_plan(plan, typer.echo)
    typer.echo(f"trace {verdict.trace_hash}, {verdict.virtual_s:.1f} virtual seconds")
    if not verdict.ok:
        typer.secho(f"{verdict.checker}: {verdict.text.strip()}", fg=typer.colors.RED)
        raise typer.Exit(EXIT_FAILED)
    typer.echo(f"no law was broken; {quantity(verdict.acknowledged)} messages acknowledged, none lost")


@app.command(epilog="Example: skidway sim shrink --seed 17")
@friendly
def shrink(seed: Seed, nodes: Nodes = None) -> None:
    """Find fewer faults and clients with which a failing seed still fails in the same way."""
    from skidway.sim.plan import draw_plan
    from skidway.sim.run import run_plan
    from skidway.sim.shrink import shrink as shrink_plan

    plan = draw_plan(seed, nodes=nodes)
    verdict = run_plan(plan)
    if verdict.ok:
        typer.echo(f"seed {seed} breaks no law: nothing to shrink")
        return
    typer.echo(f"seed {seed}: {verdict.checker}: {verdict.text.strip()}")
    smallest, runs = shrink_plan(plan, verdict.checker)
    typer.echo(f"after {runs} runs: {len(plan.faults)} -> {len(smallest.faults)} faults; {smallest.describe()}")
    for fault in smallest.faults:
        typer.echo(f"  {fault.at_ms:>6} ms  {fault.kind} (target {fault.target}) for {fault.lasts_ms} ms")
    raise typer.Exit(EXIT_FAILED)


def _verdicts(seeds: range, jobs: int, nodes: int | None) -> Iterator["Verdict"]:
    """In processes of their own: a simulation replaces the clocks of the process it runs in."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_run_one, seed, nodes) for seed in seeds]
        for finished in as_completed(waiting):
            yield finished.result()


def _run_one(seed: int, nodes: int | None) -> "Verdict":
    from skidway.sim.run import run_seed

    return run_seed(seed, nodes=nodes)


def _summarise(verdicts: list["Verdict"]) -> None:
    virtual_s = sum(verdict.virtual_s for verdict in verdicts)
    cpu_s = sum(verdict.cpu_s for verdict in verdicts)
    faults: Counter[str] = Counter()
    for verdict in verdicts:
        faults.update(verdict.marks)
    failed = [verdict for verdict in verdicts if not verdict.ok]
    typer.echo(
        f"{len(verdicts)} seeds, {quantity(virtual_s)} virtual seconds in {quantity(cpu_s)} seconds of CPU "
        f"({virtual_s / max(cpu_s, 1e-9):.1f} times as fast as real time)"
    )
    typer.echo(
        f"{quantity(sum(v.acknowledged for v in verdicts))} messages acknowledged, "
        f"{quantity(sum(v.reads for v in verdicts))} read"
    )
    typer.echo("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(faults.items())))
    if not failed:
        typer.secho("no law was broken", fg=typer.colors.GREEN)
        return
    by_law = Counter(verdict.checker for verdict in failed)
    listed = ", ".join(f"{law} {count}" for law, count in by_law.most_common())
    typer.secho(f"{len(failed)} seeds broke a law: {listed}", fg=typer.colors.RED)
    typer.echo(f"skidway sim replay --seed {failed[0].seed} shows the first of them")


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

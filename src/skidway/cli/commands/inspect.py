"""`skidway inspect`: look into a partition's files without a broker, and verify them."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.json_lines import iso_time, to_json
from skidway.cli.output import (
    EXIT_DAMAGED,
    AsJson,
    fail,
    friendly,
    group,
    print_json,
    print_table,
    progress,
    quantity,
    run,
    size,
)

if TYPE_CHECKING:
    from skidway.cli.segments import Finding, OnBatch, ProducerEntry, SegmentReport
    from skidway.records.batch import BatchHeader

app = group("Read and verify the files of a partition, without a broker.")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FINDINGS_SHOWN = 50
EPILOG = """
Exit code 0: sound; 3: damaged.\n
Examples:\n
skidway inspect log data\n
skidway inspect log data/orders-0 --deep\n
skidway inspect log data/orders-0/00000000000000000000.log --batches | head
"""

PathArgument = Annotated[Path, typer.Argument(help="A .log file, a partition's directory or a data directory.")]
Batches = Annotated[bool, typer.Option("--batches", help="Print every batch.")]
Records = Annotated[bool, typer.Option("--records", help="Print every record as a JSON line.")]
Producers = Annotated[bool, typer.Option("--producers", help="List the producers of the newest snapshot.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show what a broker repairs by itself, such as missing indexes.")
]
Deep = Annotated[bool, typer.Option("--deep", help="Also unpack and read every record.")]


@dataclass(slots=True)
class PartitionReport:
    directory: Path
    segments: "list[SegmentReport]" = field(default_factory=list)
    producers: "list[ProducerEntry]" = field(default_factory=list)
    findings: "list[Finding]" = field(default_factory=list)

    @property
    def all_findings(self) -> "list[Finding]":
        return [finding for segment in self.segments for finding in segment.findings] + self.findings

    @property
    def damaged(self) -> bool:
        return any(finding.damage for finding in self.all_findings)


@app.command("log", epilog=EPILOG)
@friendly
def inspect_log(
    path: PathArgument,
    batches: Batches = False,
    records: Records = False,
    producers: Producers = False,
    deep: Deep = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Dump and verify the files of partitions: batches, checksums, indexes, producer snapshots."""
    show = _record_printer() if records else _batch_printer() if batches and not as_json else None
    chosen = _segments(path)
    total = sum(segment.stat().st_size for segments in chosen.values() for segment in segments)
    reports: list[PartitionReport] = []
    visible = False if show is not None else None
    with progress("reading", total, shown=visible) as meter:
        done = 0
        for directory, segments in chosen.items():
            report, done = _inspect(directory, segments, deep or records, show, meter.set, done)
            reports.append(report)
    if as_json:
        print_json([_document(report, with_producers=producers) for report in reports])
    else:
        _print_reports(reports, to_stderr=show is not None, verbose=verbose)
        if producers:
            _print_producers(reports)
    if any(report.damaged for report in reports):
        raise typer.Exit(EXIT_DAMAGED)


def _segments(path: Path) -> dict[Path, list[Path]]:
    from skidway.cli.segments import SEGMENT_NAME, partitions_of, segments_of

    if path.is_dir():
        found = {directory: segments_of(directory) for directory in partitions_of(path)}
        if not found:
            fail(f"{path} has no segment files (00000000000000000000.log) and no partition directories")
        return found
    log = path.with_suffix(".log")
    if not path.exists():
        fail(f"{path}: no such file or directory")
    if not SEGMENT_NAME.fullmatch(log.name) or not log.exists():
        fail(f"{path} is not a segment file; expected a name of 20 digits and .log")
    return {path.parent: [log]}


def _inspect(
    directory: Path,
    segments: list[Path],
    deep: bool,
    show: "OnBatch | None",
    advance: Callable[[float, str], None],
    done: int,
) -> tuple[PartitionReport, int]:
    from skidway.cli.segments import Finding, check_order, check_segment, check_snapshot

    report = PartitionReport(directory)
    for path in segments:
        on_bytes = _advancing(advance, done, f"{directory.name}/{path.name}")
        checked = check_segment(path, deep=deep, on_batch=show, on_bytes=on_bytes)
        report.segments.append(checked)
        done += checked.bytes
    report.findings += check_order(report.segments)
    missing = sum(segment.missing for segment in report.segments)
    if missing:
        text = f"{missing} index files are missing; a broker rebuilds them when it starts"
        report.findings.append(Finding(str(directory), -1, text, damage=False))
    for path in sorted(directory.glob("*.snapshot")):
        producers, findings = check_snapshot(path)
        # The last snapshot stands for the partition; the earlier ones are only verified.
        report.producers = producers
        report.findings += findings
    return report, done


def _advancing(advance: Callable[[float, str], None], before: int, note: str) -> Callable[[int], None]:
    return lambda count: advance(before + count, note)


def _batch_printer() -> "OnBatch":
    def show(position: int, header: "BatchHeader", batch: bytearray) -> None:
        marks = [name for name, on in (("txn", header.is_transactional), ("control", header.is_control)) if on]
        fields = [
            f"position {position}",
            f"offsets {header.base_offset}-{header.last_offset}",
            f"records {header.record_count}",
            f"bytes {header.size}",
            f"codec {_codec(header.codec)}",
            f"epoch {header.partition_leader_epoch}",
            f"time {iso_time(header.max_timestamp)}",
            f"crc {header.crc:08x}",
        ]
        if header.producer_id >= 0:
            sequence = f"{header.base_sequence}-{header.last_sequence}"
            fields.append(f"producer {header.producer_id}/{header.producer_epoch} sequence {sequence}")
        sys.stdout.write("  ".join(fields + marks) + "\n")

    return show


def _record_printer() -> "OnBatch":
    from skidway.blocking_client.consumer import Consumed
    from skidway.errors import ProtocolError
    from skidway.limits import DEFAULT_LIMITS
    from skidway.records.record import read_records

    def show(position: int, header: "BatchHeader", batch: bytearray) -> None:
        try:
            for record in read_records(batch, decompressed_bytes_max=DEFAULT_LIMITS.decompressed_bytes_max):
                document = to_json(Consumed("", -1, *record))
                del document["topic"], document["partition"]
                document["control"] = header.is_control
                sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        except ProtocolError:
            # `deep` has it among the findings.
            pass

    return show


def _codec(number: int) -> str:
    return CODECS[number] if number < len(CODECS) else str(number)


def _document(report: PartitionReport, *, with_producers: bool) -> dict[str, Any]:
    segments = [
        {
            "file": str(segment.path),
            "bytes": segment.bytes,
            "batches": segment.batches,
            "records": segment.records,
            "first_offset": segment.first_offset,
            "last_offset": segment.last_offset,
            "max_timestamp": segment.max_timestamp,
            "index_entries": segment.index_entries,
            "time_index_entries": segment.time_entries,
            "codecs": {_codec(codec): count for codec, count in sorted(segment.codecs.items())},
        }
        for segment in report.segments
    ]
    findings = [
        {"file": found.file, "position": found.position, "damage": found.damage, "text": found.text}
        for found in report.all_findings
    ]
    return {
        "directory": str(report.directory),
        "damaged": report.damaged,
        "segments": segments,
        "producers": [asdict(producer) for producer in report.producers] if with_producers else len(report.producers),
        "findings": findings,
    }


def _print_reports(reports: list[PartitionReport], *, to_stderr: bool, verbose: bool) -> None:
    columns = ("partition", "segments", "size", "batches", "records", "offsets", "producers", "state")
    rows = [
        (
            report.directory.name or str(report.directory),
            len(report.segments),
            size(sum(segment.bytes for segment in report.segments)),
            quantity(sum(segment.batches for segment in report.segments)),
            quantity(sum(segment.records for segment in report.segments)),
            _offsets(report),
            len(report.producers),
            "DAMAGED" if report.damaged else "sound",
        )
        for report in reports
    ]
    if not to_stderr:
        print_table(columns, rows, right=("segments", "size", "batches", "records", "producers"))
    _print_findings([finding for report in reports for finding in report.all_findings], to_stderr, verbose)


def _print_findings(findings: "list[Finding]", to_stderr: bool, verbose: bool) -> None:
    """A running broker saves indexes at checkpoints only: every partition of a healthy one has notes."""
    shown = [finding for finding in findings if finding.damage or verbose]
    for finding in shown[:FINDINGS_SHOWN]:
        where = f"{finding.file} at {finding.position}" if finding.position >= 0 else finding.file
        colour = typer.colors.RED if finding.damage else typer.colors.YELLOW
        label = typer.style("damage:" if finding.damage else "note:", fg=colour)
        typer.echo(f"{label} {where}: {finding.text}", err=to_stderr)
    if len(shown) > FINDINGS_SHOWN:
        typer.echo(f"and {len(shown) - FINDINGS_SHOWN} more; --json has them all", err=to_stderr)
    if len(shown) < len(findings):
        count = len(findings) - len(shown)
        noun = "note" if count == 1 else "notes"
        typer.echo(
            f"{count} {noun} on what a broker repairs by itself; --verbose shows {'it' if count == 1 else 'them'}",
            err=True,
        )


def _print_producers(reports: list[PartitionReport]) -> None:
    columns = ("partition", "producer", "epoch", "last sequence", "last offset", "last time", "open transaction")
    rows = [
        (
            report.directory.name,
            producer.producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.last_offset,
            iso_time(producer.timestamp) or "-",
            f"from {producer.transaction_start}" if producer.transaction_start >= 0 else "-",
        )
        for report in reports
        for producer in report.producers
    ]
    typer.echo()
    print_table(columns, rows, right=("producer", "epoch", "last sequence", "last offset"))


def _offsets(report: PartitionReport) -> str:
    filled = [segment for segment in report.segments if segment.first_offset >= 0]
    return f"{filled[0].first_offset}-{filled[-1].last_offset}" if filled else "-"


def main(arguments: list[str]) -> int:
    return run(app, "skidway inspect", arguments)

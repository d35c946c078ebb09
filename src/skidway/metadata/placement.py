"""Which brokers hold a new partition's replicas.

Striped, as Kafka places: brokers stand in a ring in which racks alternate, each partition's first replica is one
place further than the last one's, and its followers come from racks it is not on yet as long as there are any. The
start is random, so that small topics do not all begin on the same broker. Fenced brokers are taken only when the
others do not suffice, and never first; drained ones not at all.
"""

from collections.abc import Iterable

from msgspec import Struct

from skidway.errors import InvalidReplicationFactor
from skidway.ports import Random


class Site(Struct):
    """A broker as a place to put replicas."""

    id: int
    rack: str | None = None
    fenced: bool = False
    drained: bool = False
    """An operator keeps it empty."""


def place(sites: Iterable[Site], partitions: int, replication_factor: int, random: Random) -> list[list[int]]:
    """The replicas of each new partition, the preferred leader first."""
    everywhere = sorted(sites, key=lambda site: site.id)
    open_to_new = [site for site in everywhere if not site.drained]
    usable = [site for site in open_to_new if not site.fenced]
    fenced = [site for site in open_to_new if site.fenced]
    if replication_factor <= 0:
        raise InvalidReplicationFactor(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    but = _drained(everywhere)
    if everywhere and not open_to_new:
        raise InvalidReplicationFactor(f"There is no broker to place replicas on{but}.")
    if not usable:
        raise InvalidReplicationFactor(f"All{' other' if but else ''} brokers are currently fenced{but}.")
    if replication_factor > len(open_to_new):
        raise InvalidReplicationFactor(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(open_to_new)} {'other ' if but else ''}broker(s) are registered{but}."
        )
    ring = _alternate_racks(usable)
    spare = _alternate_racks(fenced)
    start = random.randrange(len(ring))
    return [_replicas(ring, spare, start + partition, replication_factor) for partition in range(partitions)]


def _drained(sites: list[Site]) -> str:
    """Why some brokers do not count, for who would count them."""
    ids = [str(site.id) for site in sites if site.drained]
    if not ids:
        return ""
    who = f"broker {ids[0]} is" if len(ids) == 1 else f"brokers {', '.join(ids)} are"
    return f"; {who} drained and take{'s' if len(ids) == 1 else ''} no new replicas"


def _alternate_racks(sites: list[Site]) -> list[Site]:
    racks: dict[str, list[Site]] = {}
    for site in sites:
        racks.setdefault(site.rack or "", []).append(site)
    rows = [racks[name] for name in sorted(racks)]
    longest = max(map(len, rows), default=0)
    return [row[turn] for turn in range(longest) for row in rows if turn < len(row)]


def _replicas(ring: list[Site], spare: list[Site], position: int, replication_factor: int) -> list[int]:
    size = len(ring)
    first = ring[position % size]
    others = [ring[(position + step) % size] for step in range(1, size)]
    # Each time around the ring the followers shift by one more, so that a leader's load, should it fail, does not
    # always fall on the same neighbour.
    shift = position // size % len(others) if others else 0
    chosen, racks, left = [first], {first.rack}, list[Site]()
    for site in others[shift:] + others[:shift]:
        if site.rack is not None and site.rack in racks:
            left.append(site)
        else:
            chosen.append(site)
            racks.add(site.rack)
    return [site.id for site in (chosen + left + spare)[:replication_factor]]

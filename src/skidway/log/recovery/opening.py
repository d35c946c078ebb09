"""Opening a log: what its directory holds is loaded, and what cannot be believed is not served."""

from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.log import retention
from skidway.log.log import Log
from skidway.log.producers import Producers
from skidway.log.recovery import settling
from skidway.log.recovery.loading import Loader
from skidway.log.segment import schedule_roll
from skidway.log.settings import LogSettings
from skidway.ports import Disk


def open_log(
    disk: Disk,
    directory: str,
    settings: LogSettings,
    *,
    clean: bool,
    recovery_point: int,
    start_offset: int | None,
    now_ms: int,
    committed: int = 0,
    intact: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    sync: bool = True,
) -> Log:
    """Load a directory that exists (an empty one too). `clean`: the last owner closed it and said so; `intact`: it was
    killed, and the machine ran on. A log that ends below `committed` is quarantined.

    After a crash the name of the directory itself must be made durable by the caller. Without `sync`, so must all that
    was found (see `settling`).
    """
    producers = Producers(count_max=limits.producers_per_partition_max, expiry_ms=limits.producer_expiry_ms)
    loader = Loader(disk, directory, settings, producers, clean=clean, intact=intact, now_ms=now_ms)
    log = Log(disk, directory, settings, loader.load(recovery_point, start_offset, committed), limits)
    if loader.made_segment or not loader.clean:
        log.unsynced.mark_names_unsynced(parent=clean)
    if not log.quarantined:
        schedule_roll(log.active, settings)
        retention.give_up_below_start(log, now_ms)
    if sync:
        settling.settle(log)
    if disk.files_short:
        log.spare_files()
    return log

"""A log gets worse by steps, keeps the first reason, and becomes well again in one way only."""

import errno

import pytest

from skidway.errors import DamagedLog, StorageError
from skidway.log.health import (
    SOUND,
    Damage,
    DiskRefusal,
    Health,
    Quarantined,
    ReadOnly,
    Reason,
    begun_anew,
    failed,
    quarantined,
    reason_bytes,
    reason_from_bytes,
    reason_of,
)

LATER = Damage("later")


@pytest.mark.parametrize(
    ("before", "after_failure", "after_damage"),
    [
        (SOUND, ReadOnly("later"), Quarantined(LATER)),
        (ReadOnly("first"), ReadOnly("first"), Quarantined(DiskRefusal("first"))),
        (Quarantined(Damage("first")), Quarantined(Damage("first")), Quarantined(Damage("first"))),
    ],
)
def test_it_never_gets_better_by_a_failure(before: Health, after_failure: Health, after_damage: Health) -> None:
    assert failed(before, "later") == after_failure
    assert quarantined(before, LATER) == after_damage


def test_beginning_anew_ends_a_quarantine() -> None:
    assert begun_anew(SOUND) is SOUND
    assert begun_anew(Quarantined(Damage("its file is gone"))) is SOUND


def test_a_failed_disk_is_not_forgiven() -> None:
    with pytest.raises(AssertionError, match="cannot be replaced"):
        begun_anew(ReadOnly("fsync failed"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EIO, "Input/output error"), DiskRefusal),
        (StorageError("t-0: [Errno 5] Input/output error"), DiskRefusal),
        (FileNotFoundError(errno.ENOENT, "removed"), Damage),
        (DamagedLog("t-0 ends inside a batch"), Damage),
    ],
)
def test_an_error_tells_damage_from_a_disk_that_refuses(error: OSError | StorageError, kind: type[Reason]) -> None:
    assert reason_of(error) == kind(str(error))


@pytest.mark.parametrize(
    "reason",
    [
        Damage("its first file is gone"),
        Damage("a key was b'[Errno 5]'"),
        DiskRefusal("[Errno 5] "),
        DiskRefusal("ä: b"),
    ],
)
def test_a_file_keeps_the_kind_of_a_reason_and_its_text(reason: Reason) -> None:
    data = reason_bytes(reason)
    assert reason_from_bytes(data) == reason
    assert reason.text in data.decode(), "an operator reads it"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"its directory is missing", Damage("its directory is missing")),
        (b"[Errno 2] removed while the broker has it open", Damage("[Errno 2] removed while the broker has it open")),
        (b"t-0: [Errno 5] Input/output error", DiskRefusal("t-0: [Errno 5] Input/output error")),
        (b"", Damage("the disk was full, so the reason is not known any more")),
        (b"\xff", Damage("\ufffd")),
    ],
)
def test_files_of_earlier_versions_are_read(data: bytes, reason: Reason) -> None:
    assert reason_from_bytes(data) == reason

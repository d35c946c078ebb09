"""How pipelines deliver to topics, without Spark: what they choose, and what becomes of older checkpoints."""

import logging
from pathlib import Path

import pytest
from joint_commit import without_joint_commit

from skidway.spark.pipelines import checkpoints
from skidway.spark.pipelines.aggregate import AggregateOptions
from skidway.spark.pipelines.dedupe import DedupeOptions
from skidway.spark.pipelines.delivering import choose, choose_for_stream
from skidway.spark.pipelines.options import BadPipeline
from skidway.spark.pipelines.replay import ReplayOptions


def planned(checkpoint: Path, *numbers: int) -> None:
    write(checkpoint / "offsets", numbers)


def done(checkpoint: Path, *numbers: int) -> None:
    write(checkpoint / "commits", numbers)


def write(log: Path, numbers: tuple[int, ...]) -> None:
    log.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (log / str(number)).touch()
        (log / f".{number}.crc").touch()


def first_batch(bootstrap: str, checkpoint: Path, asked: str | None = None) -> str | None:
    return choose_for_stream("route", bootstrap, asked, [], str(checkpoint)).settings.get("firstBatch")


def test_exactly_once_is_the_default(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    for asked in (None, "exactly_once"):
        chosen = choose("route", bootstrap, asked, ["kafka.transaction.timeout.ms=60000"])
        assert chosen.settings == {
            "kafka.bootstrap.servers": bootstrap,
            "delivery": "exactly_once",
            "kafka.transaction.timeout.ms": "60000",
        }
    assert choose("route", bootstrap, "at_least_once", []).settings["delivery"] == "at_least_once"
    assert caplog.text == ""


def test_brokers_that_cannot_get_rows_at_least_once_and_the_pipeline_says_so(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_joint_commit(monkeypatch)
    with caplog.at_level(logging.WARNING):
        chosen = choose("route", bootstrap, None, [])
    assert (chosen.delivery, chosen.exactly_once, chosen.settings["delivery"]) == (
        "at_least_once",
        False,
        "at_least_once",
    )
    [record] = caplog.records
    assert record.getMessage().startswith("route writes at least once, so after a crash some rows may be there twice: ")
    assert "Apache Kafka cannot" in record.getMessage()
    with pytest.raises(BadPipeline, match=r"delivery=exactly_once needs a broker .* Apache Kafka cannot"):
        choose("route", bootstrap, "exactly_once", [])
    assert choose("route", bootstrap, "at_least_once", []).delivery == "at_least_once"
    assert len(caplog.records) == 1, "what was asked for needs no warning"


def test_a_new_checkpoint_begins_with_its_first_batch(bootstrap: str, tmp_path: Path) -> None:
    assert first_batch(bootstrap, tmp_path / "new") == "0"
    planned(tmp_path / "new", 0, 1, 2)
    done(tmp_path / "new", 0, 1)
    assert first_batch(bootstrap, tmp_path / "new") == "0", "what was written down stays"


def test_an_old_checkpoint_begins_with_its_next_batch(bootstrap: str, tmp_path: Path) -> None:
    ended, cut_off = tmp_path / "ended", tmp_path / "cut off"
    for checkpoint in (ended, cut_off):
        planned(checkpoint, *range(8, 18))
        done(checkpoint, *range(8, 17))
    done(ended, 17)
    assert first_batch(bootstrap, ended) == "18"
    assert first_batch(bootstrap, cut_off) == "17", "as a whole, whatever of it was written"


def test_a_pipeline_may_go_back_and_forth(bootstrap: str, tmp_path: Path) -> None:
    assert first_batch(bootstrap, tmp_path) == "0"
    planned(tmp_path, 0, 1)
    done(tmp_path, 0, 1)
    assert first_batch(bootstrap, tmp_path, "at_least_once") is None
    planned(tmp_path, 2)
    done(tmp_path, 2)
    assert first_batch(bootstrap, tmp_path) == "3"


def test_what_a_user_sets_wins(bootstrap: str, tmp_path: Path) -> None:
    chosen = choose_for_stream("route", bootstrap, None, ["firstBatch=9"], str(tmp_path))
    assert chosen.settings["firstBatch"] == "9"
    assert not (tmp_path / checkpoints.DELIVERY_FILE).exists()
    assert "firstBatch" not in choose_for_stream("route", bootstrap, None, [], "s3a://bucket/x").settings


def test_a_file_that_is_damaged_is_written_anew(tmp_path: Path) -> None:
    for content in ("", "[]", "{}", '{"exactly_once_since_batch": null}'):
        (tmp_path / checkpoints.DELIVERY_FILE).write_text(content)
        assert checkpoints.exactly_once_since(tmp_path) == 0
        assert (tmp_path / checkpoints.DELIVERY_FILE).read_text() == '{"exactly_once_since_batch": 0}'


def test_what_makes_no_sense_is_refused(bootstrap: str) -> None:
    with pytest.raises(BadPipeline, match="delivery must be exactly_once or at_least_once, not 'twice'"):
        DedupeOptions(topic=["a"], to_topic="b", id="id", delivery="twice")
    with pytest.raises(BadPipeline, match="delivery must be"):
        ReplayOptions(topic=["a"], to_topic="b", delivery="twice")
    with pytest.raises(BadPipeline, match="are for topics"):
        AggregateOptions(topic=["a"], to_table="b", delivery="exactly_once")
    with pytest.raises(BadPipeline, match="an option of its own"):
        choose("route", bootstrap, None, ["delivery=exactly_once"])
    with pytest.raises(BadPipeline, match=r"option kafka\.akcs"):
        choose("route", bootstrap, None, ["kafka.akcs=1"])

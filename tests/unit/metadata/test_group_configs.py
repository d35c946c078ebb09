"""Settings of single groups between the broker's bounds, which may move."""

import pytest

from skidway.errors import ErrorCode, InvalidConfig
from skidway.metadata import configs, group_configs
from skidway.metadata.config_keys import ConfigSource, ResourceType
from skidway.metadata.image import Image
from skidway.metadata.operations import AlterOp, ConfigChange, IncrementalAlterConfigs
from skidway.wire.schema.metadata_records import ConfigRecord

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
STATIC = {
    f"group.{SESSION}": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.max.session.timeout.ms": "60000",
    f"group.{HEARTBEAT}": "300",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.max.heartbeat.interval.ms": "15000",
}


def test_a_group_follows_the_broker_until_it_has_a_setting() -> None:
    assert group_configs.timeouts({}, STATIC) == (3_000, 300)
    assert group_configs.timeouts({SESSION: "20000"}, STATIC) == (20_000, 300)
    assert group_configs.timeouts({}, {}) == (45_000, 5_000)


def test_bounds_that_moved_hold_for_what_was_stored_before() -> None:
    stored = {SESSION: "50000", HEARTBEAT: "250"}
    group_configs.validate(stored, STATIC)
    moved = {
        **STATIC,
        "group.consumer.max.session.timeout.ms": "40000",
        "group.consumer.min.heartbeat.interval.ms": "500",
    }
    assert group_configs.timeouts(stored, moved) == (40_000, 500)
    with pytest.raises(InvalidConfig, match=r"group\.consumer\.max\.session\.timeout\.ms \(40000\)"):
        group_configs.validate(stored, moved)


def test_a_group_without_settings_is_fine_whatever_the_broker_s_are() -> None:
    group_configs.validate({}, {f"group.{SESSION}": "1", f"group.{HEARTBEAT}": "5"})


def test_settings_of_groups_that_are_not_there_yet_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidConfig, match="groups are not available yet"):
        group_configs.validate({"streams.num.standby.replicas": "1"}, STATIC)


def test_each_setting_is_described_with_where_it_comes_from() -> None:
    heartbeat, session = group_configs.describe({SESSION: "20000"}, STATIC, (HEARTBEAT, SESSION))
    assert (heartbeat.name, heartbeat.value, heartbeat.source) == (HEARTBEAT, "300", ConfigSource.STATIC_BROKER)
    assert (session.name, session.value, session.source) == (SESSION, "20000", ConfigSource.DYNAMIC_GROUP)
    assert [each.value for each in session.synonyms] == ["20000", "3000", "45000"]


def test_a_broker_setting_that_is_the_default_is_told_as_that() -> None:
    (session,) = group_configs.describe({}, {**STATIC, f"group.{SESSION}": "45000"}, (SESSION,))
    assert (session.value, session.source, len(session.synonyms)) == ("45000", ConfigSource.DEFAULT, 1)


def test_only_so_many_groups_have_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group need not exist to have some, so nobody else counts them."""
    monkeypatch.setattr(configs, "RESOURCES_MAX", 2)
    image = Image()
    for name in ("a", "b"):
        image.apply(ConfigRecord(ResourceType.GROUP, name, SESSION, "20000"))

    def changed(name: str) -> ErrorCode:
        asked = ConfigChange(ResourceType.GROUP, name, [(SESSION, AlterOp.SET, "30000")])
        (result,) = configs.decide_incremental(image, STATIC, IncrementalAlterConfigs([asked])).reply
        return result.error

    assert changed("c") == ErrorCode.POLICY_VIOLATION
    assert changed("a") == ErrorCode.NONE

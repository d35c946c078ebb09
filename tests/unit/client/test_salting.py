"""Salted keys spread and come back, whatever the keys look like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skidway.client.salting import SaltedKey

KEYS = st.one_of(st.text(), st.from_regex(r"[ab]?(_[0-9]{1,2}){0,3}", fullmatch=True))


def test_a_key_goes_round_its_buckets() -> None:
    salted = SaltedKey(3)
    assert [salted.salt("user") for _ in range(4)] == ["user_1", "user_2", "user_3", "user_1"]
    assert salted.every("user") == ["user_1", "user_2", "user_3"]
    assert salted.unsalt("user_2") == "user"
    assert salted.unsalt(b"user_2") == b"user"


def test_only_hot_keys_are_salted() -> None:
    salted = SaltedKey(2, hot={"celebrity"})
    assert [salted.salt("celebrity"), salted.salt("nobody")] == ["celebrity_1", "nobody"]
    assert salted.every("nobody") == ["nobody"]
    assert salted.unsalt("nobody_1") == "nobody_1"


def test_a_cold_key_that_looks_like_a_salted_one_is_not_mistaken() -> None:
    salted = SaltedKey(2, hot={"celebrity"})
    assert salted.unsalt(salted.salt("celebrity_1")) == "celebrity_1"
    assert salted.salt("celebrity_1") not in salted.every("celebrity")


def test_numbers_that_are_no_buckets_belong_to_the_key() -> None:
    salted = SaltedKey(3)
    for key in ("user_0", "user_4", "user_01", "user_", "user_x", "user_²"):
        assert salted.unsalt(key) == key


def test_at_least_one_bucket() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        SaltedKey(0)


@given(key=KEYS, buckets=st.integers(1, 12), hot=st.none() | st.sets(KEYS, max_size=4))
def test_salting_is_reversible(key: str, buckets: int, hot: set[str] | None) -> None:
    salted = SaltedKey(buckets, hot=hot)
    assert salted.unsalt(salted.salt(key)) == key
    raw = SaltedKey(buckets, hot=None if hot is None else {one.encode() for one in hot})
    assert raw.unsalt(raw.salt(key.encode())) == key.encode()


@given(first=KEYS, second=KEYS, hot=st.none() | st.sets(KEYS, max_size=4))
def test_two_keys_never_become_one(first: str, second: str, hot: set[str] | None) -> None:
    salted = SaltedKey(3, hot=hot)
    if first != second:
        assert not set(salted.every(first)) & set(salted.every(second))

"""Incremental fetch sessions: what is left out, what is told, and how a session is lost."""

import pytest
from raw import Body, Connection, MakeTopic
from raw_batches import build, values
from wire_calls import produce, topic_id

UNKNOWN_TOPIC_OR_PARTITION = 3
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
CLOSE = -1


class Session:
    """Speaks one session by name (version 12) or by topic id (version 17)."""

    def __init__(self, wire: Connection, topic: str, version: int) -> None:
        self.wire = wire
        self.topic = topic
        self.version = version
        self.named = {"topic_id": topic_id(wire, topic)} if version >= 13 else {"topic": topic}
        self.id = 0
        self.epoch = 0

    def fetch(self, offsets: dict[int, int], forget: tuple[int, ...] = (), **more: int) -> Body:
        wanted = [{"partition": p, "fetch_offset": at, "partition_max_bytes": 50_000} for p, at in offsets.items()]
        body = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1_000_000,
            "session_id": self.id,
            "session_epoch": self.epoch,
            "topics": [{**self.named, "partitions": wanted}] if wanted else [],
            "forgotten_topics_data": [{**self.named, "partitions": list(forget)}] if forget else [],
            **more,
        }
        answer = self.wire.call("Fetch", self.version, body)
        if answer["error_code"] == 0:
            self.id, self.epoch = answer["session_id"], self.epoch + 1
        return answer


def told(answer: Body) -> dict[int, list[tuple[int, bytes | None]]]:
    return {
        one["partition_index"]: values(one["records"]) for topic in answer["responses"] for one in topic["partitions"]
    }


@pytest.fixture(params=[7, 12, 17], ids=["v7", "v12", "v17"])
def session(request: pytest.FixtureRequest, wire: Connection, make_topic: MakeTopic) -> Session:
    session = Session(wire, make_topic(partitions=3), request.param)
    answer = session.fetch({0: 0, 1: 0, 2: 0})
    assert answer["error_code"] == 0
    assert answer["session_id"] > 0
    assert told(answer) == {0: [], 1: [], 2: []}, "a full fetch names every partition"
    return session


def test_nothing_new_is_an_empty_answer(session: Session) -> None:
    answer = session.fetch({})
    assert (answer["error_code"], answer["session_id"], answer["responses"]) == (0, session.id, [])


def test_only_partitions_with_news_are_told(session: Session, wire: Connection) -> None:
    produce(wire, session.topic, build([b"a"]), partition=1)
    assert told(session.fetch({})) == {1: [(0, b"a")]}
    assert told(session.fetch({})) == {1: [(0, b"a")]}, "until the reader moves on"
    assert told(session.fetch({1: 1})) == {}
    produce(wire, session.topic, build([b"b"]), partition=1)
    produce(wire, session.topic, build([b"c"]), partition=2)
    assert told(session.fetch({})) == {1: [(1, b"b")], 2: [(0, b"c")]}


def test_a_forgotten_partition_is_told_no_more(session: Session, wire: Connection) -> None:
    produce(wire, session.topic, build([b"a"]), partition=0)
    produce(wire, session.topic, build([b"a"]), partition=1)
    assert told(session.fetch({}, forget=(1,))) == {0: [(0, b"a")]}
    assert told(session.fetch({1: 0}, forget=(0,))) == {1: [(0, b"a")]}, "and may come back"


def test_a_fetch_without_a_session(session: Session) -> None:
    session.id, session.epoch = 0, CLOSE
    answer = session.fetch({0: 0})
    assert (answer["error_code"], answer["session_id"], told(answer)) == (0, 0, {0: []})


def test_a_wrong_epoch(session: Session) -> None:
    good = session.epoch
    for epoch in (good + 1, good - 1 or 7):
        session.epoch = epoch
        answer = session.fetch({})
        assert (answer["error_code"], answer["responses"]) == (INVALID_FETCH_SESSION_EPOCH, [])
    session.epoch = good
    assert session.fetch({})["error_code"] == 0, "the session outlives the mistake"


def test_an_unknown_session(session: Session) -> None:
    session.id = 123_456_789
    answer = session.fetch({})
    assert (answer["error_code"], answer["session_id"], answer["responses"]) == (FETCH_SESSION_ID_NOT_FOUND, 0, [])


def test_a_closed_session_is_gone(session: Session) -> None:
    gone = session.id
    session.epoch = CLOSE
    answer = session.fetch({0: 0})
    assert (answer["error_code"], answer["session_id"]) == (0, 0)
    session.id, session.epoch = gone, 2
    assert session.fetch({})["error_code"] == FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_with_the_old_id_makes_a_new_session(session: Session) -> None:
    old = session.id
    session.epoch = 0
    answer = session.fetch({0: 0})
    assert answer["error_code"] == 0
    assert answer["session_id"] not in (0, old)
    new = session.id, session.epoch
    session.id, session.epoch = old, 1
    assert session.fetch({})["error_code"] == FETCH_SESSION_ID_NOT_FOUND
    session.id, session.epoch = new
    assert session.fetch({})["error_code"] == 0


def test_errors_are_told_again_and_again(session: Session) -> None:
    """A partition that is not there: an error may not be mistaken for silence."""
    for offsets in ({9: 0}, {}, {}):
        answer = session.fetch(offsets)
        ((partition,),) = [topic["partitions"] for topic in answer["responses"]]
        assert (partition["partition_index"], partition["error_code"]) == (9, UNKNOWN_TOPIC_OR_PARTITION)


def test_a_session_belongs_to_no_connection(session: Session, bootstrap: str, wire: Connection) -> None:
    produce(wire, session.topic, build([b"a"]), partition=2)
    with Connection(bootstrap) as other:
        session.wire = other
        assert told(session.fetch({})) == {2: [(0, b"a")]}

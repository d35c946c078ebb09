"""A follower of partitions driven by lines of text, for transcripts: its fetcher, real logs on simulated disks, and a
leader that answers over the real codec. Node 1 leads first, node 2 follows.

    topics NAME ... [flush=sync]   make them, with one partition each, led by node 1 in epoch 0
    write VALUE ... [to=TOPIC]     the leader appends, each value as a batch (to the first topic, if none is named)
    fetch                          the follower asks, and gets the answer
    fetch lost                     ...gets no answer
    fetch spoiled=TOPIC            ...gets an answer in which the last bit of that topic's records is wrong
    ask, answer                    a fetch in two steps: what is done in between happens after the leader has answered
    elect N [alone] [unclean] [unheard]
                                   node N leads all topics in the next epoch; with `alone` nobody else is in sync. The
                                   other node follows, unless it has not heard of it yet
    hear                           now it has
    lose N OFFSET                  node N loses everything from there on and restarts, as with a broken disk
    delete-before OFFSET           records are deleted at the leader (DeleteRecords, retention)
    sync                           the follower syncs what it has appended, and saves where its logs begin
    wait MS                        time passes
    logs                           what both nodes have, each value with its epoch

`A > B` is a request of the follower or the answer to it. A fetch names the partitions that have changed since the last
one of its session; `all:` begins a session. `N: ...` says what became of the follower.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace
from replica_sites import WALL_MS, Following, Site, elect, role, write
from transcripts import NOTHING

from skidway.broker.partitions.partition import Partition
from skidway.errors import ErrorCode
from skidway.log import retention
from skidway.log.bounds import Bound
from skidway.log.durability import checkpointing
from skidway.records.batch import read_header
from skidway.records.record import read_records
from skidway.wire.schema.fetch import FetchRequest, FetchResponse
from skidway.wire.schema.list_offsets import ListOffsetsRequest, ListOffsetsResponse

BYTES_MAX = 1 << 20
NOBODY = -1


class Transcript:
    def __init__(self) -> None:
        self.sites = {1: Site(1), 2: Site(2)}
        self.topics: list[str] = []
        self.leader, self.epoch = 1, 0
        self.role = role(1, 0, replicas=[1, 2])
        self.following = Following(self.sites[2], self.sites[1])
        self.answer: tuple[Any] | None = None
        self.seen: dict[str, str] = {}
        self.told: list[str] = []

    def run(self, line: str) -> str:
        command, *words = line.split()
        options = dict(word.split("=") for word in words if "=" in word)
        self.told = []
        getattr(self, f"do_{command.replace('-', '_')}")([word for word in words if "=" not in word], options)
        self.tell_changes()
        return "\n".join(self.told) or NOTHING

    # --- commands ---

    def do_topics(self, words: list[str], options: dict[str, str]) -> None:
        self.topics = words
        for topic in words:
            for site in self.sites.values():
                site.host(topic, flush=options.get("flush", "os"))
            elect(self.copy(topic, 1), self.copy(topic, 2), epoch=0)
        self.follow()

    def do_write(self, words: list[str], options: dict[str, str]) -> None:
        write(self.copy(options.get("to", self.topics[0]), self.leader), *[word.encode() for word in words])
        self.sites[self.leader].sync()

    def do_fetch(self, words: list[str], options: dict[str, str]) -> None:
        self.do_ask(words, options)
        if self.answer is None:
            return
        if "lost" in words:
            self.answer = (None,)
        self.do_answer(words, options)

    def do_ask(self, words: list[str], options: dict[str, str]) -> None:
        request = self.following.ask()
        if request is None:
            deadline_ms = self.following.fetcher.deadline_ms
            when = "" if deadline_ms is None else f" for {deadline_ms - self.following.now_ms} ms"
            self.told.append(f"{self.follower} asks nothing{when}")
            return
        self.told.append(f"{self.follower} > {self.leader} {show_request(request)}")
        self.answer = (self.sites[self.leader].answer(request, self.following.now_ms),)

    def do_answer(self, words: list[str], options: dict[str, str]) -> None:
        assert self.answer is not None, "nothing was asked"
        (reply,), self.answer = self.answer, None
        told = "no answer" if reply is None else show_answer(reply)
        self.told.append(f"{self.leader} > {self.follower} {told}")
        if "spoiled" in options:
            spoil(reply, options["spoiled"])
        self.following.tell(reply)

    def do_elect(self, words: list[str], options: dict[str, str]) -> None:
        self.leader, self.epoch = int(words[0]), self.epoch + 1
        self.role = role(self.leader, self.epoch, replicas=[1, 2], unclean="unclean" in words)
        if "alone" in words:
            self.role = replace(self.role, in_sync=[self.leader])
        for topic in self.topics:
            self.copy(topic, self.leader).lead(self.role, self.following.now_ms)
        if "unheard" not in words:
            self.do_hear([], {})

    def do_hear(self, words: list[str], options: dict[str, str]) -> None:
        for topic in self.topics:
            self.copy(topic, self.follower).follow(self.role, self.following.now_ms)
        self.follow()

    def do_lose(self, words: list[str], options: dict[str, str]) -> None:
        for topic in self.topics:
            copy = self.copy(topic, int(words[0]))
            copy.cut_to(int(words[1]), WALL_MS)
            copy.follow(replace(self.role, leader=NOBODY), self.following.now_ms)

    def do_delete_before(self, words: list[str], options: dict[str, str]) -> None:
        for topic in self.topics:
            retention.delete_before(self.copy(topic, self.leader).log, int(words[0]))

    def do_sync(self, words: list[str], options: dict[str, str]) -> None:
        self.sites[self.follower].sync()
        for topic in self.topics:
            copy = self.copy(topic, self.follower)
            ticket = checkpointing.begin(copy.log)
            if ticket is not None:
                ticket.run()
                copy.log.finish_sync(ticket)
            self.following.fetcher.on_stored(copy)

    def do_wait(self, words: list[str], options: dict[str, str]) -> None:
        self.following.pass_time(int(words[0]))

    def do_logs(self, words: list[str], options: dict[str, str]) -> None:
        for topic in self.topics:
            for node_id in self.sites:
                log = self.copy(topic, node_id).log
                found = log.read(log.start_offset, BYTES_MAX, Bound.END)
                values = " ".join(values_of(found.read())) if found is not None else "nothing"
                self.told.append(
                    f"{node_id} has {topic}: {values}, offsets {log.start_offset} to {log.end_offset}, "
                    f"high watermark {log.high_watermark}"
                )

    # --- what follows from them ---

    @property
    def follower(self) -> int:
        return 3 - self.leader

    def copy(self, topic: str, node_id: int) -> Partition:
        return next(copy for copy in self.sites[node_id].partitions.values() if copy.topic == topic)

    def follow(self) -> None:
        """In a new epoch; the fetcher of a leader stays the same as long as it leads."""
        following = self.following
        if following.leader.node_id != self.leader or following.site.node_id != self.follower:
            now_ms = following.now_ms
            following = self.following = Following(self.sites[self.follower], self.sites[self.leader])
            following.now_ms = now_ms
            self.answer = None
        following.follow(*[self.copy(topic, self.follower) for topic in self.topics])

    def tell_changes(self) -> None:
        following = self.following
        self.told += [f"{self.follower}: {line}" for line in [*following.cuts, *following.troubles]]
        following.cuts.clear()
        following.troubles.clear()
        for topic in self.topics:
            log = self.copy(topic, self.follower).log
            state = f"{topic} has offsets {log.start_offset} to {log.end_offset}, high watermark {log.high_watermark}"
            told = f"{self.follower}: {state}"
            if self.seen.get(topic) != told:
                self.told.append(told)
                self.seen[topic] = told


def spoil(response: Any, topic: str) -> None:
    """Flip the last bit of what it brings for a topic."""
    for answered in response.responses:
        if name(answered.topic_id) == topic:
            for data in answered.partitions:
                records = bytearray(data.records)
                records[-1] ^= 1
                data.records = bytes(records)


def values_of(data: Any) -> Iterator[str]:
    position = 0
    while position < len(data):
        header = read_header(memoryview(data)[position:])
        for record in read_records(data[position : position + header.size], decompressed_bytes_max=BYTES_MAX):
            yield f"{(record.value or b'').decode()}@{header.partition_leader_epoch}"
        position += header.size


def name(topic_id: bytes) -> str:
    return bytes(topic_id).strip(b"\0").decode()


def show_request(request: Any) -> str:
    if isinstance(request, ListOffsetsRequest):
        named = [f"{topic.name} in epoch {topic.partitions[0].current_leader_epoch}" for topic in request.topics]
        return f"where does the log begin: {', '.join(named)}"
    assert isinstance(request, FetchRequest)
    named = [
        f"{name(topic.topic_id)} from {each.fetch_offset}, last epoch {each.last_fetched_epoch}, in epoch "
        f"{each.current_leader_epoch}{begins(each.log_start_offset)}"
        for topic in request.topics
        for each in topic.partitions
    ]
    named += [f"without {name(topic.topic_id)}" for topic in request.forgotten_topics_data]
    everything = "all: " if request.session_epoch == 0 else ""
    return f"fetch {everything}{'; '.join(named) or 'no change'}"


def show_answer(response: Any) -> str:
    if isinstance(response, ListOffsetsResponse):
        return ", ".join(f"{topic.name} begins at {topic.partitions[0].offset}" for topic in response.topics)
    assert isinstance(response, FetchResponse)
    if response.error_code:
        return ErrorCode(response.error_code).name
    return "; ".join(
        f"{name(topic.topic_id)}: {show_data(data)}" for topic in response.responses for data in topic.partitions
    )


def show_data(data: Any) -> str:
    if data.error_code:
        return ErrorCode(data.error_code).name
    if data.diverging_epoch.epoch >= 0:
        return f"diverging, epoch {data.diverging_epoch.epoch} ends at {data.diverging_epoch.end_offset} here"
    values = " ".join(values_of(bytes(data.records)))
    return f"{values or 'no records'}, high watermark {data.high_watermark}{begins(data.log_start_offset)}"


def begins(start_offset: int) -> str:
    return f", log begins at {start_offset}" if start_offset else ""

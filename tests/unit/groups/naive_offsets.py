"""Committed offsets as simply as possible: one list of commits in the order of the log, looked through as a whole
whenever something is asked. The last one that counts is the offset. A commit of an open transaction stands where it was
written and does not count yet.

Written from Kafka's behaviour: who may commit, fetch and delete, and when an offset is forgotten. The groups are a
naive classic one each, until somebody joins with the consumer protocol; of that protocol only as much is here as
offsets depend on: a group with one member at most.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from model_world import Topics
from naive_classic_group import EMPTY, Durable, NaiveClassicGroup, error

from skidway.groups.operations import CommitOffsets, CommitOffsetsInTransaction, DeleteOffsets, FetchOffsets
from skidway.groups.settings import GroupSettings

Key = tuple[str, str, int]


@dataclass
class NaiveCommit:
    offset: int
    leader_epoch: int
    metadata: str
    at_ms: int
    expires_ms: int | None
    topic_id: bytes | None
    producer_id: int | None = None
    """Whose open transaction it belongs to."""


@dataclass
class NaiveConsumers:
    """A group of the consumer protocol."""

    epoch: int = 0
    member: str | None = None
    topics: set[str] = field(default_factory=set)
    sizes: dict[str, Any] = field(default_factory=dict)
    """Id and size of the topics, as they were when somebody last looked."""
    expires_ms: int | None = None


class NaiveOffsets:
    def __init__(
        self, settings: GroupSettings, topics: Topics, group_ids: list[str], choose: Callable[..., str]
    ) -> None:
        self.settings, self.topics, self.choose = settings, topics, choose
        self.classic = {each: NaiveClassicGroup(settings, choose) for each in group_ids}
        self.consumers: dict[str, NaiveConsumers] = {}
        self.history: list[tuple[Key, NaiveCommit]] = []
        self.now_ms = 0
        self.check_ms = settings.retention_check_ms

    # What was written.

    @property
    def offsets(self) -> dict[Key, NaiveCommit]:
        return {key: commit for key, commit in self.history if commit.producer_id is None}

    def is_pending(self, key: Key) -> bool:
        return any(each == key and commit.producer_id is not None for each, commit in self.history)

    def _drop(self, *keys: Key) -> None:
        self.history = [each for each in self.history if each[0] not in keys]

    # Who may.

    def exists(self, group_id: str) -> bool:
        return group_id in self.consumers or self.classic[group_id].exists

    def is_empty(self, group_id: str) -> bool:
        if group_id in self.consumers:
            return self.consumers[group_id].member is None
        return self.classic[group_id].state == EMPTY

    def _is_subscribed(self, group_id: str, topic: str) -> bool:
        if group_id in self.consumers:
            group = self.consumers[group_id]
            return group.member is not None and topic in group.topics
        return self.classic[group_id].is_subscribed(topic)

    def _wrong_epoch(self, group_id: str, member_id: str | None, epoch: int) -> str | None:
        group = self.consumers[group_id]
        if group.member is None or member_id != group.member:
            return "UNKNOWN_MEMBER_ID"
        return None if epoch == group.epoch else "STALE_MEMBER_EPOCH"

    def _commit_refusal(self, call: CommitOffsets) -> str | None:
        if call.group_id not in self.consumers:
            return self.classic[call.group_id].commit_refusal(call)
        group = self.consumers[call.group_id]
        if call.generation < 0 and group.member is None:
            return None
        if call.member_id == group.member and call.version < 9:
            return "UNSUPPORTED_VERSION"
        return self._wrong_epoch(call.group_id, call.member_id, call.generation)

    def _transactional_refusal(self, call: CommitOffsetsInTransaction) -> str | None:
        group_id, is_new = call.group_id, call.version >= 6
        if not self.exists(group_id):
            return None if call.generation < 0 else "GROUP_ID_NOT_FOUND" if is_new else "ILLEGAL_GENERATION"
        nameless = not call.member_id and call.instance_id is None
        if call.generation < 0 and (nameless or self.is_empty(group_id)):
            return None
        if group_id in self.consumers:
            refusal = self._wrong_epoch(group_id, call.member_id, call.generation)
            return "ILLEGAL_GENERATION" if refusal == "STALE_MEMBER_EPOCH" and not is_new else refusal
        group = self.classic[group_id]
        refusal = group.wrong_member(call.member_id, call.instance_id)
        return "ILLEGAL_GENERATION" if refusal is None and call.generation != group.generation else refusal

    # What they ask.

    def commit(self, call: CommitOffsets | CommitOffsetsInTransaction) -> tuple[Any, ...]:
        if isinstance(call, CommitOffsetsInTransaction):
            refusal, producer_id, retention_ms = self._transactional_refusal(call), call.producer.id, -1
        else:
            refusal, producer_id, retention_ms = self._commit_refusal(call), None, call.retention_ms
        if refusal is not None:
            return error(refusal)
        codes = []
        for each in call.offsets:
            if len(each.metadata) > self.settings.offset_metadata_bytes_max:
                codes.append("OFFSET_METADATA_TOO_LARGE")
                continue
            codes.append("NONE")
            keeps = retention_ms == -1
            commit = NaiveCommit(
                each.offset,
                each.leader_epoch if keeps else -1,
                each.metadata,
                self.now_ms,
                None if keeps else self.now_ms + retention_ms,
                self.topics.id_of(each.topic) if keeps else None,
                producer_id,
            )
            self.history.append(((call.group_id, each.topic, each.partition), commit))
            if not self.exists(call.group_id):
                self.classic[call.group_id].exists = True
        return ("codes", *codes)

    def end_transaction(self, producer_id: int, *, committed: bool) -> tuple[Any, ...]:
        mine = [commit for _, commit in self.history if commit.producer_id == producer_id]
        if not committed:
            self.history = [each for each in self.history if each[1].producer_id != producer_id]
        for commit in mine:
            commit.producer_id = None
        return ("done",)

    def fetch(self, call: FetchOffsets) -> Any:
        if call.group_id in self.consumers and not (call.member_id is None and call.member_epoch < 0):
            refusal = self._wrong_epoch(call.group_id, call.member_id, call.member_epoch)
            if refusal is not None:
                return error(refusal)
        wanted = call.partitions
        if wanted is None:
            known = [key for key, _ in self.history] if call.require_stable else list(self.offsets)
            wanted = sorted({(topic, number) for group, topic, number in known if group == call.group_id})
        found: list[Any] = []
        for each in wanted:
            if call.require_stable and self.is_pending((call.group_id, *each)):
                found.append((*each, "UNSTABLE_OFFSET_COMMIT"))
                continue
            offset = self._known(call.group_id, *each)
            if offset[0] != -1 or call.partitions is not None:
                found.append((*each, *offset))
        return found

    def _known(self, group_id: str, topic: str, number: int) -> tuple[int, int, str]:
        commit = self.offsets.get((group_id, topic, number))
        current = self.topics.id_of(topic)
        if commit is None or (commit.topic_id is not None and current is not None and commit.topic_id != current):
            return (-1, -1, "")
        return (commit.offset, commit.leader_epoch, commit.metadata)

    def delete(self, call: DeleteOffsets) -> tuple[Any, ...]:
        if not self.exists(call.group_id):
            return error("GROUP_ID_NOT_FOUND")
        if call.group_id not in self.consumers:
            group = self.classic[call.group_id]
            if group.state != EMPTY and group.protocol_type != "consumer":
                return error("NON_EMPTY_GROUP")
        codes = []
        for topic, number in call.partitions:
            if self._is_subscribed(call.group_id, topic):
                codes.append("GROUP_SUBSCRIBED_TO_TOPIC")
            else:
                codes.append("NONE")
                self._drop((call.group_id, topic, number))
        return ("codes", *codes)

    def delete_group(self, group_id: str) -> tuple[Any, ...]:
        if not self.exists(group_id):
            return error("GROUP_ID_NOT_FOUND")
        if not self.is_empty(group_id):
            return error("NON_EMPTY_GROUP")
        self._forget_group(group_id)
        self.history = [each for each in self.history if each[0][0] != group_id]
        return ("done",)

    def _forget_group(self, group_id: str) -> None:
        self.consumers.pop(group_id, None)
        self.classic[group_id].forget()

    def delete_topic(self, topic: str) -> None:
        self.history = [each for each in self.history if each[0][1] != topic]

    # The consumer protocol, with one member.

    def consumer_joins(self, group_id: str, member_id: str, topics: set[str]) -> int:
        """The epoch it is to be told."""
        self.classic[group_id].forget()
        group = self.consumers.setdefault(group_id, NaiveConsumers())
        sizes = {each: (self.topics.id_of(each), self.topics.sizes[each]) for each in topics & set(self.topics.sizes)}
        if (group.member, group.topics, group.sizes) != (member_id, topics, sizes):
            group.epoch += 1
        group.member, group.topics, group.sizes = member_id, topics, sizes
        group.expires_ms = self.now_ms + self.settings.consumer_session_timeout_ms
        return group.epoch

    def consumer_leaves(self, group_id: str) -> None:
        group = self.consumers[group_id]
        group.member, group.expires_ms, group.topics, group.sizes = None, None, set(), {}
        group.epoch += 1

    # Time.

    def next_ms(self) -> int:
        moments = [group.next_ms() for group in self.classic.values()]
        moments += [group.expires_ms for group in self.consumers.values()]
        return min([self.check_ms, *(each for each in moments if each is not None)])

    def pass_time(self, now_ms: int) -> None:
        """Called at each moment `next_ms` names."""
        self.now_ms = now_ms
        for group in self.classic.values():
            group.pass_time(now_ms)
        for group_id, consumers in self.consumers.items():
            if consumers.expires_ms is not None and consumers.expires_ms <= now_ms:
                self.consumer_leaves(group_id)
        if self.check_ms <= now_ms:
            self.check_ms = now_ms + self.settings.retention_check_ms
            for group_id in self.classic:
                self._expire(group_id)

    def _expire(self, group_id: str) -> None:
        if not self.exists(group_id):
            return
        for key, commit in self.offsets.items():
            if key[0] != group_id or self._is_subscribed(group_id, key[1]) or self.is_pending(key):
                continue
            if self._has_expired(group_id, commit):
                self._drop(key)
        if self.is_empty(group_id) and not any(key[0] == group_id for key, _ in self.history):
            self._forget_group(group_id)

    def _has_expired(self, group_id: str, commit: NaiveCommit) -> bool:
        since_ms: int | None = commit.at_ms
        if group_id not in self.consumers:
            since_ms = self.classic[group_id].retained_since_ms(commit.at_ms)
        if since_ms is None:
            return False
        if commit.expires_ms is not None:
            return self.now_ms >= commit.expires_ms
        return self.now_ms - since_ms >= self.settings.retention_ms

    # The log.

    def written(self) -> Any:
        """What a coordinator finds when it starts now."""
        groups = {each: (group.exists, copy.deepcopy(group.durable)) for each, group in self.classic.items()}
        return copy.deepcopy((groups, self.consumers, self.history))

    def restart(self, written: Any) -> None:
        groups, consumers, history = copy.deepcopy(written)
        for group_id, (exists, durable) in groups.items():
            group = self.classic[group_id]
            group.exists, group.durable = exists, durable if exists else Durable()
            group.restart()
        self.consumers, self.history = consumers, history
        for each in self.consumers.values():
            if each.member is not None:
                each.expires_ms = self.now_ms + self.settings.consumer_session_timeout_ms
        self.check_ms = self.now_ms + self.settings.retention_check_ms

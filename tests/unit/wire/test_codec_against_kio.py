"""Every message in every version, byte for byte against an implementation that shares nothing with ours."""

from random import Random

import pytest
from kio.index import KioIndexError
from kio_oracle import entity_class, kio_reads, kio_writes, to_entity
from wire_samples import api_messages, encode, random_message, record_messages, versions_of

from skidway.wire.message import Message
from skidway.wire.registry import codec
from skidway.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

SAMPLES = 6

# kio has no internal records. This list must not grow unnoticed: what is here is checked by round trip only.
UNKNOWN_TO_KIO = [
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClientQuotaRecord",
    "CommitTransactionsRequest",
    "CommitTransactionsResponse",
    "CountMessagesRequest",
    "CountMessagesResponse",
    "ManageSchedulesRequest",
    "ManageSchedulesResponse",
    "ReceiveMessagesRequest",
    "ReceiveMessagesResponse",
    "SendMessagesRequest",
    "SendMessagesResponse",
    "SettleMessagesRequest",
    "SettleMessagesResponse",
    "ConfigRecord",
    "DelegationTokenRecord",
    "DescribeShareDeliveryRequest",
    "DescribeShareDeliveryResponse",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UserScramCredentialRecord",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareUpdateKey",
    "ShareUpdateValue",
    "TransactionLogKey",
    "TransactionLogValue",
    "QuorumStateData",
]

NEWER_THAN_KIO = {"TxnOffsetCommitRequest": 6, "TxnOffsetCommitResponse": 6}
"""The first version that kio does not know. What is here has its bytes below."""

MESSAGES = [*api_messages(), *record_messages()]
KNOWN = [message for message in MESSAGES if message.__name__ not in UNKNOWN_TO_KIO]


def samples(message: type[Message], version: int) -> list[Message]:
    random = Random(f"{message.__name__} {version}")
    return [message(), *(random_message(message, version, random) for _ in range(SAMPLES))]


def by_name(message: type[Message]) -> str:
    return message.__name__


@pytest.mark.parametrize("message", KNOWN, ids=by_name)
def test_both_write_the_same_bytes_and_read_each_other(message: type[Message]) -> None:
    for version in versions_of(message):
        if version >= NEWER_THAN_KIO.get(message.__name__, version + 1):
            continue
        kio_class = entity_class(message, version)
        for sample in samples(message, version):
            entity = to_entity(sample, kio_class, version)
            ours, theirs = encode(sample, version), kio_writes(entity)
            assert ours == theirs, f"v{version} {sample}"
            assert codec(message).decoder(version)(theirs, 0) == (sample, len(theirs)), f"v{version}"
            assert kio_reads(ours, kio_class) == entity, f"v{version}"


@pytest.mark.parametrize("message", [m for m in MESSAGES if m.__name__ in UNKNOWN_TO_KIO], ids=by_name)
def test_what_kio_does_not_know_survives_a_round_trip(message: type[Message]) -> None:
    for version in versions_of(message):
        for sample in samples(message, version):
            ours = encode(sample, version)
            assert codec(message).decoder(version)(ours, 0) == (sample, len(ours)), f"v{version}"


def test_the_list_of_messages_kio_does_not_know_is_exact() -> None:
    unknown = []
    for message in MESSAGES:
        try:
            for version in versions_of(message):
                entity_class(message, version)
        except KioIndexError:
            unknown.append(message.__name__)
    assert sorted(unknown) == sorted([*UNKNOWN_TO_KIO, *NEWER_THAN_KIO])


def test_offsets_of_transactions_name_topics_by_id_from_version_6_on() -> None:
    """By Kafka's description of the messages: KIP-1319."""
    partition = TxnOffsetCommitRequestPartition(2, 300, 4, None)
    topic = TxnOffsetCommitRequestTopic("unsaid", bytes(range(16)), [partition])
    request = TxnOffsetCommitRequest("id", "g", 7, 1, 9, "m", None, [topic])
    written = bytes.fromhex(
        "036964 0267 0000000000000007 0001 00000009 026d 00"
        "02 000102030405060708090a0b0c0d0e0f 02 00000002 000000000000012c 00000004 00 00 00 00"
    )
    assert encode(request, 6) == written
    topic.name = ""
    assert codec(TxnOffsetCommitRequest).decoder(6)(written, 0) == (request, len(written))
    answer = TxnOffsetCommitResponseTopic("", bytes(range(16)), [TxnOffsetCommitResponsePartition(2, 100)])
    response = TxnOffsetCommitResponse(5, [answer])
    written = bytes.fromhex("00000005 02 000102030405060708090a0b0c0d0e0f 02 00000002 0064 00 00 00")
    assert encode(response, 6) == written
    assert codec(TxnOffsetCommitResponse).decoder(6)(written, 0) == (response, len(written))

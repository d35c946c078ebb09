"""Every message in every version, byte for byte against an implementation that shares nothing with ours."""

from random import Random

import pytest
from kio.index import KioIndexError
from kio_oracle import entity_class, kio_reads, kio_writes, to_entity
from wire_samples import api_messages, encode, random_message, record_messages, versions_of

from skidway.wire.message import Message
from skidway.wire.registry import codec

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
    "ConfigRecord",
    "DelegationTokenRecord",
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
    "ShareGroupPartitionMetadataKey",
    "ShareGroupPartitionMetadataValue",
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
    assert sorted(unknown) == sorted(UNKNOWN_TO_KIO)

"""Keys and values of control records."""

from skidway.wire.message import Message, array, int16, int32, int64, nested, string, uint16, uuid


class ControlRecordTypeSchema(Message, versions="0"):
    type: int = int16("0+")


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: int = int32("0+")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")
    k_raft_version: int = int16("0+")


class LeaderChangeVoter(Message):
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter, "0+")
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter, "0+")


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")


class Endpoint(Message):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Message):
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class VotersVoter(Message):
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    endpoints: list[Endpoint] = array(Endpoint, "0+")
    k_raft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature, "0+")


class VotersRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")
    voters: list[VotersVoter] = array(VotersVoter, "0+")

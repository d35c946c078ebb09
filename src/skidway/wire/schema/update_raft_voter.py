"""UpdateRaftVoter (key 82), v0."""

from skidway.wire.message import Message, array, int16, int32, nested, string, uint16, uuid


class Listener(Message):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Message):
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class UpdateRaftVoterRequest(Message, key=82, versions="0", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    current_leader_epoch: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    listeners: list[Listener] = array(Listener, "0+")
    k_raft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature, "0+")


class CurrentLeader(Message):
    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)
    host: str = string("0+")
    port: int = int32("0+")


class UpdateRaftVoterResponse(Message, key=82, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    current_leader: CurrentLeader = nested(CurrentLeader, "0+", tag=0)

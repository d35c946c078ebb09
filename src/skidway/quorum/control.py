"""The quorum's own records in its log and its snapshots, as KRaft writes them: batches marked as control.

What cannot be read raises CorruptMessage: a set of voters is never guessed.
"""

from collections.abc import Callable, Iterator, Sequence

from skidway.errors import CorruptMessage, InvalidRecord, ProtocolError
from skidway.limits import MIB
from skidway.ports import Buffer
from skidway.quorum.voters import Member, Voter, Voters
from skidway.records.control import ControlType, control_key, read_control_type
from skidway.records.record import Record, build_batch, read_records
from skidway.wire.compile import Codec
from skidway.wire.message import Message
from skidway.wire.registry import codec, encoded
from skidway.wire.schema.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersVoter,
)

LISTENER = "CONTROLLER"
"""The name of the listener under which a voter's address is written."""
_KRAFT_VERSION = 1
_CONTROL_BYTES_MAX = MIB
_LEADER_CHANGE_VERSION = 1
_codec: Callable[[type[Message]], Codec[Message]] = codec

Control = tuple[ControlType, bytes]
"""Kind and value of one control record."""


def _encode(message: Message, version: int = 0) -> bytes:
    return encoded(message, version)


def leader_change(leader: Member, voters: Voters, granted: Sequence[Member]) -> Control:
    message = LeaderChangeMessage(
        version=_LEADER_CHANGE_VERSION,
        leader_id=leader.node_id,
        voters=[_plain(member) for member in voters.members],
        granting_voters=[_plain(member) for member in granted],
    )
    return ControlType.LEADER_CHANGE, _encode(message, _LEADER_CHANGE_VERSION)


def _plain(member: Member) -> LeaderChangeVoter:
    return LeaderChangeVoter(voter_id=member.node_id, voter_directory_id=member.directory_id)


def voters_record(voters: Voters) -> Control:
    feature = KRaftVersionFeature(min_supported_version=0, max_supported_version=_KRAFT_VERSION)
    written = [
        VotersVoter(
            voter_id=voter.member.node_id,
            voter_directory_id=voter.member.directory_id,
            endpoints=[Endpoint(name=LISTENER, host=voter.host, port=voter.port)] if voter.host else [],
            k_raft_version_feature=feature,
        )
        for voter in voters
    ]
    return ControlType.KRAFT_VOTERS, _encode(VotersRecord(version=0, voters=written))


def kraft_version() -> Control:
    return ControlType.KRAFT_VERSION, _encode(KRaftVersionRecord(version=0, k_raft_version=_KRAFT_VERSION))


def snapshot_header(last_timestamp: int) -> Control:
    message = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp)
    return ControlType.SNAPSHOT_HEADER, _encode(message)


def snapshot_footer() -> Control:
    return ControlType.SNAPSHOT_FOOTER, _encode(SnapshotFooterRecord(version=0))


def control_batch(
    controls: Sequence[Control], timestamp_ms: int, *, base_offset: int = 0, epoch: int = -1
) -> bytearray:
    records = [Record(0, timestamp_ms, control_key(kind), value) for kind, value in controls]
    return build_batch(records, base_offset=base_offset, leader_epoch=epoch, control=True)


def read_controls(batch: Buffer) -> Iterator[tuple[int, ControlType, bytes]]:
    """Offset, kind and value of each record of a control batch."""
    try:
        for record in read_records(batch, decompressed_bytes_max=_CONTROL_BYTES_MAX):
            yield record.offset, read_control_type(record.key), record.value or b""
    except InvalidRecord as error:
        raise CorruptMessage(f"unreadable control records: {error}") from error


def decode_voters(value: bytes) -> Voters:
    try:
        message, end = _codec(VotersRecord).decoder(0)(value, 0)
    except (ProtocolError, IndexError) as error:
        raise CorruptMessage(f"an unreadable set of voters: {error}") from error
    assert isinstance(message, VotersRecord)
    if end != len(value) or not message.voters:
        raise CorruptMessage("a set of voters that is empty or goes on after its end")
    return Voters(_voter(written) for written in message.voters)


def _voter(written: VotersVoter) -> Voter:
    member = Member(written.voter_id, written.voter_directory_id)
    if not written.endpoints:
        return Voter(member)
    endpoint = next((known for known in written.endpoints if known.name == LISTENER), written.endpoints[0])
    return Voter(member, endpoint.host, endpoint.port)

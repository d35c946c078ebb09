"""WriteTxnMarkers (key 27), v1–v2."""

from skidway.wire.message import Message, array, boolean, int8, int16, int32, int64, string


class WritableTxnMarkerTopic(Message):
    name: str = string("0+")
    partition_indexes: list[int] = array("int32", "0+")
    leader_epochs: list[int] = array("int32", "1+", tag=1000)
    """Skidway's own: in which epoch the receiver leads each partition, as the sender knows it; or none."""


class WritableTxnMarker(Message):
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    transaction_result: bool = boolean("0+")
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+")
    transaction_version: int = int8("2+")


class WriteTxnMarkersRequest(Message, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+")
    sender_id: int = int32("1+", default=-1, tag=1000)
    sender_epoch: int = int64("1+", default=-1, tag=1001)
    sender_number: int = int64("1+", default=-1, tag=1002)
    """Skidway's own: which node sends them, in which broker epoch, and which of its requests this is."""


class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class WritableTxnMarkerTopicResult(Message):
    name: str = string("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult, "0+")


class WritableTxnMarkerResult(Message):
    producer_id: int = int64("0+")
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, "0+")


class WriteTxnMarkersResponse(Message, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+")

"""The routes about topics."""

from skidway.gateways.http.bounds import BATCH_BYTES_MAX
from skidway.gateways.http.routes import Parameter, Route
from skidway.gateways.http.topics import describe, produce, records, shapes, stream

WAIT = Parameter("wait", "Milliseconds to wait for records, if there are none yet.", int, "0")


def rows() -> list[Route]:
    return [
        Route("GET", "/v1/topics", describe.list_topics, "All topics.", answer=shapes.TopicList, packs=True),
        Route(
            "GET",
            "/v1/topics/{topic}",
            describe.describe_topic,
            "A topic and who leads its partitions.",
            answer=shapes.Topic,
            problems=(404,),
            packs=True,
        ),
        Route(
            "POST",
            "/v1/topics/{topic}/produce",
            produce.produce,
            "Write records to a topic. It answers when all in-sync replicas have them.",
            body=shapes.ProduceBody,
            answer=shapes.ProduceAnswer,
            headers=(Parameter("Idempotency-Key", "Sent again with the same key and body, it is written once."),),
            problems=(400, 403, 404, 413, 415, 422, 429, 503),
            body_bytes_max=BATCH_BYTES_MAX,
        ),
        Route(
            "GET",
            "/v1/topics/{topic}/records",
            records.records,
            "Committed records of one partition, from an offset or a time.",
            answer=shapes.RecordsAnswer,
            parameters=(
                Parameter("partition", "The partition, counted from 0.", int, "0"),
                Parameter("offset", "Where to begin: a number, `earliest` or `latest`.", str, "earliest"),
                Parameter("timestamp", "Begin with the first record that is not older, in ms since 1970.", int),
                WAIT,
                Parameter("max", "Records in the answer, at most.", int, "500"),
                Parameter("maxBytes", "About how many bytes of batches to read.", int),
            ),
            problems=(400, 404, 422, 503),
        ),
        Route(
            "GET",
            "/v1/topics/{topic}/stream",
            stream.stream,
            "Committed records of a topic as server-sent events, as they come.",
            content_type=stream.CONTENT_TYPE,
            parameters=(
                Parameter("partition", "Partitions, counted from 0 and divided by commas, or `all`.", str, "all"),
                Parameter("offset", "Where to begin: `earliest`, `latest`, `0:17,1:4`, or a number.", str, "latest"),
                Parameter("timestamp", "Begin with the first records that are not older, in ms since 1970.", int),
            ),
            headers=(Parameter("Last-Event-ID", "Where to resume: the id of the last event that came."),),
            problems=(400, 404, 422, 503),
            streams=True,
        ),
    ]

"""The routes of Confluent's REST Proxy that are served."""

from skidway.gateways.http.bounds import BATCH_BYTES_MAX
from skidway.gateways.http.confluent import shapes, v2, v3
from skidway.gateways.http.confluent.refusals import KIND_V2, refuse_v2, refuse_v3
from skidway.gateways.http.routes import Parameter, RefusalForm, Route

ONCE = Parameter("Idempotency-Key", "Sent again with the same key and body, it is written once.")

V2 = RefusalForm(refuse_v2, shapes.Failure)
V3 = RefusalForm(refuse_v3, shapes.Failure)


def rows() -> list[Route]:
    return [*_rows_v2(), *_rows_v3()]


def _rows_v2() -> list[Route]:
    return [
        Route(
            "GET",
            "/topics",
            v2.list_topics,
            "The names of all topics (Confluent REST v2).",
            answer=list[str],
            content_type=KIND_V2,
            refusal=V2,
            packs=True,
        ),
        Route(
            "GET",
            "/topics/{topic}",
            v2.describe_topic,
            "A topic (Confluent REST v2).",
            answer=shapes.TopicV2,
            content_type=KIND_V2,
            problems=(404,),
            refusal=V2,
            packs=True,
        ),
        Route(
            "POST",
            "/topics/{topic}",
            v2.produce,
            "Write records to a topic (Confluent REST v2, formats json and binary).",
            body=shapes.BodyV2,
            body_types=v2.KINDS,
            answer=shapes.ProducedV2,
            content_type=KIND_V2,
            headers=(ONCE,),
            problems=(400, 403, 404, 413, 415, 422, 429, 503),
            refusal=V2,
            body_bytes_max=BATCH_BYTES_MAX,
        ),
    ]


def _rows_v3() -> list[Route]:
    return [
        Route(
            "GET",
            "/v3/clusters",
            v3.list_clusters,
            "The cluster (Confluent REST v3).",
            answer=shapes.ClustersV3,
            refusal=V3,
        ),
        Route(
            "POST",
            "/v3/clusters/{cluster}/topics/{topic}/records",
            v3.produce,
            "Write a record, or several one behind the other (Confluent REST v3).",
            body=shapes.RecordV3,
            answer=shapes.ReportV3,
            headers=(ONCE,),
            problems=(400, 403, 404, 413, 415, 422, 429, 503),
            refusal=V3,
            body_bytes_max=BATCH_BYTES_MAX,
        ),
    ]

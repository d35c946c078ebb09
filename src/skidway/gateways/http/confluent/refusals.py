"""Refusals in the form of Confluent's REST Proxy: a number whose first three digits are the status, and a message."""

from __future__ import annotations

import msgspec

from skidway.gateways.http.confluent.shapes import Failure
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.replies import JSON, Reply

KIND_V2 = b"application/vnd.kafka.v2+json"
CODES_V2 = {
    "no_such_topic": 40401,
    "no_such_partition": 40402,
    "bad_json": 400,
    "bad_value": 422,
    "internal_topic": 40301,
    "topic_authorization_failed": 40301,
    "message_too_large": 50002,
}
CODES_V3 = {**CODES_V2, "no_such_topic": 40403, "no_such_cluster": 404, "no_such_partition": 40402}
RETRYABLE = 50003


def number_of(problem: Problem, codes: dict[str, int]) -> int:
    if problem.retryable and problem.status == 503:
        return RETRYABLE
    return codes.get(problem.code, problem.status)


def refuse_v2(problem: Problem) -> Reply:
    return _refuse(problem, CODES_V2, KIND_V2)


def refuse_v3(problem: Problem) -> Reply:
    return _refuse(problem, CODES_V3, JSON)


def _refuse(problem: Problem, codes: dict[str, int], kind: bytes) -> Reply:
    failure = Failure(number_of(problem, codes), problem.detail)
    return Reply(problem.status, kind, msgspec.json.encode(failure), problem.headers)

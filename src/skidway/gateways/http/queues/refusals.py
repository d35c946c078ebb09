"""What queues refuse, as HTTP tells it."""

from __future__ import annotations

from skidway.gateways.http.problems import Problem
from skidway.gateways.http.topics.shapes import Refusal
from skidway.gateways.queues import errors
from skidway.gateways.queues.errors import QueueError

_STATUSES: dict[type[QueueError], tuple[int, str]] = {
    errors.NoSuchQueue: (404, "no_such_queue"),
    errors.NotAQueue: (409, "not_a_queue"),
    errors.QueueExists: (409, "queue_exists"),
    errors.BadQueueName: (422, "bad_queue_name"),
    errors.BadSetting: (422, "bad_setting"),
    errors.BadReceipt: (404, "bad_receipt"),
    errors.NoSuchMessage: (404, "no_such_message"),
    errors.StaleReceipt: (409, "stale_receipt"),
    errors.NotInFlight: (409, "not_in_flight"),
    errors.BadMessage: (422, "bad_message"),
    errors.NoSuchSchedule: (404, "no_such_schedule"),
    errors.ScheduleExists: (409, "schedule_exists"),
    errors.ScheduleDue: (409, "schedule_due"),
    errors.BadSchedule: (422, "bad_schedule"),
    errors.TooManySchedules: (422, "too_many_schedules"),
    errors.MessageTooLarge: (413, "message_too_large"),
    errors.TooManyInFlight: (429, "too_many_in_flight"),
    errors.QueueUnavailable: (503, "queue_unavailable"),
    errors.OutcomeUnknown: (503, "leader_lost"),
}


def problem_of(error: QueueError) -> Problem:
    status, code = _STATUSES.get(type(error), (422, "refused"))
    return Problem(status, code, error.detail, retryable=error.retryable, retry_after_s=1 if error.retryable else None)


def refusal_of(error: QueueError) -> Refusal:
    """Of one of several messages."""
    problem = problem_of(error)
    return Refusal(problem.code, problem.detail, problem.retryable)

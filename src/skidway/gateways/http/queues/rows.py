"""The routes about queues."""

from skidway.gateways.http.bounds import BATCH_BYTES_MAX
from skidway.gateways.http.queues import manage, messages, schedules, shapes
from skidway.gateways.http.routes import Parameter, Route

_MAX = Parameter("max", "Messages in the answer, at most.", int, "1")
_PROBLEMS = (400, 404, 409, 413, 415, 422, 503)


def rows() -> list[Route]:
    return [*_work_rows(), *_message_rows(), *_schedule_rows(), *_queue_rows()]


def _work_rows() -> list[Route]:
    return [
        Route(
            "POST",
            "/messages",
            messages.send,
            "Send messages to a queue. It answers when all in-sync replicas have them.",
            body=shapes.SendBody,
            answer=shapes.SendAnswer,
            problems=_PROBLEMS,
            body_bytes_max=BATCH_BYTES_MAX,
            creates=True,
        ),
        Route(
            "GET",
            "/messages",
            messages.receive,
            "Receive messages of a queue. Until they are acknowledged, or their time is over, nobody else gets them.",
            answer=shapes.ReceiveAnswer,
            parameters=(
                Parameter("queue", "The queue."),
                _MAX,
                Parameter("wait", "Milliseconds to wait for a message, if there is none yet.", int),
                Parameter("visibility", "Milliseconds for which nobody else gets the messages.", int),
            ),
            problems=_PROBLEMS,
            takes=True,
        ),
        Route(
            "POST",
            "/v1/queues/{queue}/receive",
            messages.receive_from,
            "As `GET /messages`.",
            body=shapes.ReceiveBody,
            answer=shapes.ReceiveAnswer,
            problems=_PROBLEMS,
            takes=True,
        ),
        Route(
            "POST",
            "/ack",
            messages.acknowledge,
            "Say what became of messages: accept, release, reject or extend.",
            body=shapes.AckBody,
            answer=shapes.AckAnswer,
            problems=_PROBLEMS,
        ),
    ]


def _message_rows() -> list[Route]:
    return [
        Route(
            "GET",
            "/v1/queues/{queue}/messages",
            messages.peek,
            "The oldest messages that are not settled, without receiving them.",
            answer=shapes.ReceiveAnswer,
            parameters=(Parameter("max", "Messages in the answer, at most.", int, "10"),),
            problems=_PROBLEMS,
        ),
        Route(
            "DELETE",
            "/v1/queues/{queue}/messages/{message}",
            messages.cancel,
            "Delete a message by its id, also while it is in flight.",
            answer=shapes.Done,
            problems=_PROBLEMS,
        ),
    ]


def _schedule_rows() -> list[Route]:
    return [
        Route(
            "POST",
            "/v1/queues/{queue}/schedules",
            schedules.create,
            "Schedule a message, up to a year ahead, or again and again by a cron expression.",
            body=shapes.ScheduleBody,
            answer=shapes.CreatedSchedule,
            problems=_PROBLEMS,
            creates=True,
        ),
        Route(
            "GET",
            "/v1/queues/{queue}/schedules",
            schedules.show_all,
            "What is scheduled and has not been delivered, by id.",
            answer=shapes.ScheduleList,
            parameters=(
                Parameter("after", "Only those behind this id."),
                Parameter("max", "Schedules in the answer, at most.", int, "1000"),
            ),
            problems=_PROBLEMS,
        ),
        Route(
            "DELETE",
            "/v1/queues/{queue}/schedules/{schedule}",
            schedules.cancel,
            "Cancel what is scheduled, by its id.",
            answer=shapes.CancelledSchedule,
            problems=_PROBLEMS,
        ),
    ]


def _queue_rows() -> list[Route]:
    return [
        Route(
            "GET",
            "/v1/queues",
            manage.list_queues,
            "All queues, by name.",
            answer=shapes.QueueList,
            parameters=(
                Parameter("prefix", "Only those whose names begin so."),
                Parameter("after", "Only those behind this name."),
                Parameter("max", "Queues in the answer, at most.", int, "1000"),
            ),
            problems=(400, 422),
            packs=True,
        ),
        Route(
            "PUT",
            "/v1/queues/{queue}",
            manage.put,
            "Make a queue, or change its settings.",
            body=shapes.SettingsBody,
            answer=shapes.QueueAnswer,
            creates=True,
            problems=_PROBLEMS,
        ),
        Route(
            "GET",
            "/v1/queues/{queue}",
            manage.describe,
            "A queue and its settings.",
            answer=shapes.QueueAnswer,
            problems=_PROBLEMS,
        ),
        Route(
            "DELETE",
            "/v1/queues/{queue}",
            manage.delete,
            "Delete a queue and all its messages.",
            answer=shapes.Done,
            problems=_PROBLEMS,
        ),
        Route(
            "GET",
            "/v1/queues/{queue}/stats",
            manage.stats,
            "How many messages wait, are in flight and are delayed.",
            answer=shapes.Stats,
            problems=_PROBLEMS,
        ),
        Route(
            "POST",
            "/v1/queues/{queue}/purge",
            manage.purge,
            "Delete all messages that were sent so far.",
            answer=shapes.Done,
            problems=_PROBLEMS,
        ),
    ]

"""What a queue refuses, one type each. Doors say it in their own words; `detail` is for people."""

from __future__ import annotations


class QueueError(Exception):
    """`retryable`: the very same request may succeed later."""

    retryable = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class NoSuchQueue(QueueError):
    pass


class NotAQueue(QueueError):
    """There is a topic of this name, but it is no queue."""


class QueueExists(QueueError):
    """With other settings, perhaps: the door compares."""


class BadQueueName(QueueError):
    pass


class BadSetting(QueueError):
    def __init__(self, name: str, detail: str) -> None:
        super().__init__(detail)
        self.name = name
        """Of the topic setting."""


class BadReceipt(QueueError):
    """It was not made here, or for another queue."""


class NoSuchMessage(QueueError):
    """An id of no message that waits or is in flight."""


class StaleReceipt(QueueError):
    """The message was settled, or delivered again, since."""


class NotInFlight(QueueError):
    """There is nobody to extend the time of: the message waits, or is settled."""


class BadMessage(QueueError):
    """The queue cannot take a message like this: it lacks something, or has too much."""


class NoSuchSchedule(QueueError):
    """It was delivered or cancelled, or never was."""


class ScheduleExists(QueueError):
    """Another one, under the same id."""


class ScheduleDue(QueueError):
    """Its message is being delivered: it is too late."""


class BadSchedule(QueueError):
    pass


class TooManySchedules(QueueError):
    pass


class MessageTooLarge(QueueError):
    pass


class HeldUp(QueueError):
    """Messages wait, and nobody can receive them before others are done."""

    retryable = True


class TooManyInFlight(HeldUp):
    pass


class QueueUnavailable(QueueError):
    """No leader, loading, no room on the disk: nothing was done."""

    retryable = True


class OutcomeUnknown(QueueError):
    """The leader did not answer: it may have been done or not."""

    retryable = True

"""What a door may ask of queues. Whichever node leads them, any node answers.

Every function takes the `HttpCall` of the door: it knows the node, the caller and the time. Those that are `Steps` are
used with `yield from` in a handler that is a generator itself. They raise `QueueError`s of the whole request; where a
request is about several messages, the result has one item for each, in their order, and an item may be a `QueueError`.

- `find(call, key)`: NoSuchQueue, NotAQueue, BadQueueName
- `list_queues(call, account, region, prefix, after, count_max)`: by name, from the first one behind `after` on
- `create(call, key, settings, tags, partitions)`: `partitions` 0 is the broker's default, 1 for FIFO. QueueExists (also
  for a topic that is no queue), BadQueueName, BadSetting, QueueUnavailable
- `change_settings(call, queue, settings)`: to these; the type never changes. NoSuchQueue, BadSetting, QueueUnavailable
- `change_tags(call, queue, tags)`: to these, all of them
- `delete_queue(call, queue)`: with all its messages; polls end empty. NoSuchQueue, QueueUnavailable
- `send(call, queue, messages)`: answers when all in-sync replicas have them on their disks. Items: Sent,
  MessageTooLarge, QueueUnavailable, OutcomeUnknown
- `receive(call, queue, count_max, wait_ms, visibility_ms, attempt)`: each message is hidden from others for the
  visibility time; None stands for the queue's settings. Answers as soon as there is one, or empty when the time is
  over, the queue is deleted or the node stops. If the client is gone meanwhile, nothing stays taken. NoSuchQueue,
  QueueUnavailable
- `locate(call, receipt_or_id)`: the queue of a receipt or of a message id. BadReceipt
- `settle(call, queue, acks)`: answers when it is stored. Items: None, BadReceipt, StaleReceipt, NoSuchMessage,
  NotInFlight, QueueUnavailable. What is settled already is not an error for Accept by receipt
- `received_ms(call, queue, receipt)`: when the delivery was that the receipt is of, in ms since 1970. BadReceipt
- `purge(call, queue)`: all that was sent before is gone: waiting, delayed and in flight
- `counters(call, queue)`, `peek(call, queue, count_max)`: the oldest that are not settled, without taking them
"""

from skidway.gateways.queues.catalog import (
    change_settings,
    change_tags,
    create,
    delete_queue,
    find,
    list_queues,
    locate,
)
from skidway.gateways.queues.looking import counters, peek, purge, received_ms
from skidway.gateways.queues.receiving import receive
from skidway.gateways.queues.sending import send
from skidway.gateways.queues.settling import settle

__all__ = [
    "change_settings",
    "change_tags",
    "counters",
    "create",
    "delete_queue",
    "find",
    "list_queues",
    "locate",
    "peek",
    "purge",
    "receive",
    "received_ms",
    "send",
    "settle",
]

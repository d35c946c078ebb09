"""How a pipeline delivers to its topics: exactly once unless it is told otherwise, or the brokers cannot.

Asked for, `exactly_once` is refused where the brokers cannot commit the transactions of several tasks together; Apache
Kafka's cannot. By default such brokers get every row at least once, and a warning says so.

A pipeline whose checkpoint was made with at-least-once delivery goes on exactly once with the next batch. If its last
run was cut off in the middle of a batch, that batch is written again as a whole, as at-least-once delivery has it.
"""

import logging
from dataclasses import dataclass, field

from skidway.spark.client_settings import BOOTSTRAP, BadOption
from skidway.spark.pipelines import checkpoints
from skidway.spark.pipelines.options import BadPipeline, pairs
from skidway.spark.sink.exactly_once import ExactlyOnce, NotPossible, Stream
from skidway.spark.sink.options import AT_LEAST_ONCE, DELIVERY, EXACTLY_ONCE, FIRST_BATCH, SinkOptions

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Delivering:
    """Settings of the sink, for one run of a pipeline."""

    delivery: str
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE


def choose(name: str, bootstrap: str, asked: str | None, sink_option: list[str]) -> Delivering:
    """What was asked for, or the best that these brokers can."""
    told = pairs(sink_option, "sink_option")
    if DELIVERY in told:
        raise BadPipeline(f"sink_option: {DELIVERY} is an option of its own")
    settings = {BOOTSTRAP: bootstrap, **told}
    try:
        options = SinkOptions.parse(settings | {DELIVERY: asked or EXACTLY_ONCE})
    except BadOption as error:
        raise BadPipeline(str(error)) from None
    if asked != AT_LEAST_ONCE:
        try:
            ExactlyOnce(options, Stream()).check()
        except NotPossible as error:
            if asked is not None:
                raise BadPipeline(str(error)) from None
            logger.warning("%s writes at least once, so after a crash some rows may be there twice: %s", name, error)
            asked = AT_LEAST_ONCE
    delivery = asked or EXACTLY_ONCE
    return Delivering(delivery, settings | {DELIVERY: delivery})


def choose_for_stream(
    name: str, bootstrap: str, asked: str | None, sink_option: list[str], checkpoint: str
) -> Delivering:
    """The same for a query that goes on where its checkpoint says."""
    chosen = choose(name, bootstrap, asked, sink_option)
    folder = checkpoints.local_folder(checkpoint)
    if folder is None:
        # On another file system. Where a checkpoint is older than exactly-once delivery, the sink says what to set.
        return chosen
    if not chosen.exactly_once:
        checkpoints.at_least_once_from_now_on(folder)
    elif FIRST_BATCH not in chosen.settings:
        chosen.settings[FIRST_BATCH] = str(checkpoints.exactly_once_since(folder))
    return chosen

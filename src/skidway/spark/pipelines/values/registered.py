"""The newest schema of a topic's values in a registry, for a pipeline: asked for at its start and with every batch.

A serializer registers the schema of a value before it writes the value. So what is asked after the end of a batch was
set is as new as all that is in the batch, and no field gets lost because the pipeline was started before there was the
field. No Spark in it.
"""

from dataclasses import dataclass

from skidway.spark.pipelines.options import BadPipeline, option
from skidway.spark.pipelines.table_options import TableOptions
from skidway.spark.registry.decoding import Decoder, decoder_of
from skidway.spark.registry.opening import BadRegistry, open_registry
from skidway.spark.registry.schemas import BadSchema, RegistryFailed


@dataclass(slots=True, kw_only=True)
class FromRegistry(TableOptions):
    """What a pipeline has that keeps a table and takes values framed for a registry."""

    registry: str | None = option(
        "A schema registry that values are framed for (Avro, Protobuf, JSON Schema): its URL, or a folder.", None
    )
    subject: str | None = option("Whose newest schema in the registry has the fields. Default: TOPIC-value.", None)
    message: str | None = option("Protobuf: the message with the fields. Default: the first of the schema.", None)

    def __post_init__(self) -> None:
        TableOptions.__post_init__(self)
        if self.registry is None and (self.subject or self.message):
            raise BadPipeline("subject and message need a registry: they say what it is asked for")
        if self.registry is not None and self.subject is None and len(self.topic) > 1:
            raise BadPipeline("several topics have several subjects: name one, or archive each topic by itself")


@dataclass(slots=True)
class Registered:
    subject: str
    decoder: Decoder

    def refresh(self) -> bool:
        """Whether there is a newer schema now; BadSchema if no columns can be made by it."""
        newest = decoder_of(self.decoder.registry, self.subject, self.decoder.message)
        changed = newest != self.decoder
        self.decoder = newest
        return changed


def registered(options: FromRegistry) -> Registered | None:
    """BadPipeline, before anything is written, if values cannot be decoded. Nothing without a registry."""
    if options.registry is None:
        return None
    subject = options.subject or f"{options.topic[0]}-value"
    try:
        return Registered(subject, decoder_of(open_registry(options.registry), subject, options.message))
    except (BadRegistry, BadSchema, RegistryFailed) as error:
        raise BadPipeline(str(error)) from None

"""Values framed for a schema registry, decoded: Avro, Protobuf and JSON Schema into columns.

`decoder_of` asks the registry for the schema that columns are made by. `Decoder.decode` takes values as bytes and
answers their columns and, for each value that cannot be decoded, a reason; `from_registry` does so in Spark's tasks.

A task asks the registry itself for the schemas that its values were written with, and remembers them: the driver does
not see values, and could ship neither all schemas of a registry nor those that come while a batch runs. The schema of
the columns comes from the driver, so that all tasks of a batch have the same.
"""

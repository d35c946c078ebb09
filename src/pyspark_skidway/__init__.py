"""What PySpark looks for when it meets `format("skidway")`: a top-level module of this name with a `DefaultSource`."""

from skidway.spark.source import SkidwaySource as DefaultSource

__all__ = ["DefaultSource"]
"""What PySpark looks for when it meets `format("skidway")`: a top-level module of this name."""
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType
class DefaultSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "skidway"
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from skidway.spark.sink import batch_writer
        return batch_writer(schema, self.options, overwrite)
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from skidway.spark.sink import stream_writer
        return stream_writer(schema, self.options, overwrite)

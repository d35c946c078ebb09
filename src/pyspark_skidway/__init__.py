"""What PySpark looks for when it meets `format("skidway")`: a top-level module of this name with a `DefaultSource`."""

from skidway.spark.source.readers import SkidwaySource as DefaultSource

__all__ = ["DefaultSource"]

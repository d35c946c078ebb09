"""What PySpark looks for when it meets `format("skidway")`: a top-level module of this name."""

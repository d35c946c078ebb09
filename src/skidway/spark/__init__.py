"""Topics as a Spark source and sink, and ready pipelines: the only package that imports pyspark, pyarrow or numba."""

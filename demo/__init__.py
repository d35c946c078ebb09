"""`make demo`: a broker, a shop's events, and four pipelines on Spark, for about a minute."""

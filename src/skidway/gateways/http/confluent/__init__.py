"""The part of Confluent's REST Proxy that producers use, for clients that speak it already."""

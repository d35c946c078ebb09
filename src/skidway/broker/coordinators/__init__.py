"""Coordinators: machines that live in the partitions of an internal topic, whichever kind."""

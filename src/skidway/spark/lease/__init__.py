"""One driver at a time: a lease on a checkpoint or a table, numbered, so that a driver that lost it can be told.

`decisions` says who may take it and when, `claims` carries that out over a store, `keeping` beats for a driver.
"""

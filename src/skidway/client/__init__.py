"""A small blocking Kafka client: what the command line, the pytest fixture and the tests talk to a broker with.

It knows one connection (`connection`), who leads what (`cluster`), topics and configs (`admin`), writing (`producer`)
and reading by partition and offset (`consumer`). It has no threads; an object belongs to one thread at a time.
Groups and transactions are not its business: real applications use a Kafka client of their own.
"""

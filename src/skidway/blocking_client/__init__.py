"""The small client of the command line, of Spark's tasks and of the tests.

It blocks and has no threads; an object belongs to one thread at a time. It knows one connection (`connection`), who
leads what (`cluster`), topics and configs (`admin`), groups from outside (`groups`, `lag`), writing (`producer`),
reading by partition and offset (`reader`, `consumer`) and in a group (`membership`). It runs no transaction and has no
threads that would keep a membership alive: real applications use a Kafka client of their own.
"""

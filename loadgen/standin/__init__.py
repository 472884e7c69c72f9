"""A stand-in for a Pulsar broker: in memory, the real binary protocol, enough for the official clients and for fleets.

The way of a message through the files:

    server.py        sockets, chunk → frames → the handler of each command; lookups
    streams.py       producers and consumers of a connection: their commands and frames
    broker.py        topic names → topics, their counts and schemas; the subscriptions that have something to do
    subscription.py  the consumer of each entry: a selection for each subscription type
    entry_log.py     the entries that a topic keeps, and the cursor with the acknowledged ones

A fleet needs exclusive producers, non-persistent topics and compacted reading: `tests/loadgen/standin/test_access.py`
says what of each is as at a real broker. A command that is not served is answered by NotAllowedError, which names it.

All but `server.py` is free of sockets, clocks and tasks.
"""

"""A stand-in for a Pulsar broker: in memory, the real binary protocol, enough for the official clients.

The way of a message through the files:

    server.py       sockets: chunks in, chunks out
    connection.py   chunk → frames → the handler of each command (lookups.py, producing.py, consuming.py)
    broker.py       topic names → topics, and the subscriptions that have something to do
    topic.py        one topic: its producers, its entry_log.py, its subscriptions
    subscription.py who gets which entry: selection.py chooses, cursor.py knows what is acknowledged

All but `server.py` is free of sockets, clocks and tasks.
"""

"""One limit over many processes: who may use which share of it, and until when. Values in, values out, no I/O.

`messages` has what members and their coordinator tell each other, `member` and `coordinator` are the two ends, and
`shares` divides one limit. `proxy.fleet` carries the messages; `limiter.sharing` measures demand and enforces shares.
"""

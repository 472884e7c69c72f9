"""One limit over many processes: who may use which share of it, and until when. Values in, values out, no I/O.

`messages` has what members and their coordinator tell each other; `member` and `coordinator` are the two ends. The
coordinator keeps all limits in a `share_table`, whose names are in a `name_table`, and `shares` divides one limit.
`rules` finds the limits that are not written alike in all members.

`proxy.fleet` carries the messages; `limiter.sharing` measures demand and enforces shares.
"""

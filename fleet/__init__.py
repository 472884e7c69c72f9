"""One limit over many processes: each may use a share of the limit for a time. Values in, values out, no I/O.

`messages` are those between members and their coordinator; `member` and `coordinator` are the two ends. The coordinator
keeps all limits in a `share_table`, whose names are in a `name_table`, and `shares` divides one limit.

`proxy.fleet` carries the messages; `limiter.sharing` measures demand and enforces shares.
"""

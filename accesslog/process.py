"""The lines of the proxy itself: that it lives, and what of its log is lost."""

from datetime import datetime

from accesslog.head import LineHead


class HeartbeatLine(LineHead, kw_only=True, tag="heartbeat"):
    """The process was alive over the span, and these many lines of it are missing."""

    dropped_lines: int
    """Lines of this run so far that could not be written (each leaves a gap in `seq`)."""
    last: bool
    """True in the last line of an orderly end."""
    proxy_version: str = ""
    """Version of Sluice; empty in lines of proxies before this field."""


class StandstillLine(LineHead, kw_only=True, tag="standstill"):
    """The process did nothing over the span: a timer that was due at its begin, half a second ago or more, rings now.

    So the machine had no processor for it, or it was stopped. Somebody may have waited meanwhile who would have been
    served: each limit's own lines tell so in `idle_ms`.
    """


class LossLine(LineHead, kw_only=True, tag="loss"):
    """Lines of the log are lost for good; written as soon as there is a log again. The line's own span is empty.

    Each line that a run lost is in exactly one of these if it came to an orderly end on a disk that took its last
    lines. Of a killed run, and of one that ended while the disk took nothing, what it had not declared yet shows as
    gaps in `seq`, and what came behind its last line in a line of the next run (`killed`).
    """

    of_boot: str
    """The run whose lines these are: this one's, or an earlier one's that was killed."""
    cause: str
    """`disk`: they could not be written. `queue`: the disk took others too slowly. `killed`: the run ended without
    having written them, because it was killed or because the disk took nothing at its end."""
    detail: str
    """The error, for humans; empty where the cause says all."""
    lost_lines: int | None
    """How many; null if nobody knows, and there may have been none."""
    first_seq: int
    """`seq` of the first of them."""
    last_seq: int | None
    """`seq` of the last of them; null if nobody knows. What lies between the two need not be lost."""
    lost_from: datetime
    """When the first of them was to be written; of a killed run, the end of what it last wrote."""
    lost_until: datetime
    """When the last of them was to be written; of a killed run, when the next one began."""

"""Twice a second: what Sluice says, what the load generator says, and the picture of both."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.live import LivePicture
from demo.rates import RateMeter
from demo.streams import by_topic, fetch_streams

POLL_S = 0.5
TAIL_BYTES = 65_536


@dataclass(slots=True)
class Watch:
    """Call `look` as often as you like."""

    admin: str
    """Address of Sluice's admin HTTP, HOST:PORT."""
    live: Path
    """Where the load generator writes its live counts."""
    meter: RateMeter
    picture: LivePicture
    _next: float = field(default=0.0, init=False)

    def look(self) -> None:
        """Show how things stand, if it is time; nothing is shown while one of the two says nothing."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + POLL_S
        streams, load = fetch_streams(self.admin), last_line(self.live)
        if streams is not None and load is not None:
            self.picture.show(load["at_s"], self.meter.rows(now, by_topic(streams), load))


def last_line(live: Path) -> dict[str, Any] | None:
    """The last whole line of the live counts; None before the first."""
    if not live.exists():
        return None
    with live.open("rb") as file:
        file.seek(max(0, live.stat().st_size - TAIL_BYTES))
        lines = file.read().rpartition(b"\n")[0].splitlines()
    return json.loads(lines[-1]) if lines else None

"""Tell on the way what was counted so far: one JSON line at a time, to a file or to standard output."""

import json
from collections.abc import Mapping
from typing import Any, TextIO


class LiveLines:
    """Writes `{"at_s": seconds since the begin, "topics": {name: counts so far}}` and a newline, at once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, at_s: float, topics: Mapping[str, Any]) -> None:
        """Write one line."""
        self._out.write(json.dumps({"at_s": round(at_s, 3), "topics": topics}) + "\n")
        self._out.flush()

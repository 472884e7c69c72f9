"""Work in units that no machine makes longer: calls."""

import sys
from collections.abc import Callable


def calls_of(act: Callable[[], object]) -> int:
    """Return the number of calls within `act`, of Python's own functions and of others, its own included."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls

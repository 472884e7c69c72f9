"""What can go wrong while measuring."""


class BenchError(Exception):
    """A peer could not be had or started, or a measurement failed; one line."""


def last_line(said: str) -> str:
    """Of what a program said: most programs say last why they end."""
    lines = said.strip().splitlines() or ["it said nothing"]
    return lines[-1].strip()

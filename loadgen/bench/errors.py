"""What can go wrong while measuring."""


class BenchError(Exception):
    """A peer could not be had or started, or a measurement failed; one line."""

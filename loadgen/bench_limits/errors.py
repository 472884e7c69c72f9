"""What can go wrong while measuring."""


class BenchError(Exception):
    """A part could not be started or asked, or ended early; one line that names it."""

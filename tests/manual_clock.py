"""What tests of limits need; shipped, so that users of the cores can test theirs."""


class ManualClock:
    """Nanoseconds that pass only when told to."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        """The time, nanoseconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self.now += round(seconds * 1_000_000_000)

"""Commands of `loadgen`; what they need is imported when they run."""


def broker() -> None:
    """To come."""


def load() -> None:
    """To come."""

"""Commands of `compliance`; what they need is imported when they run."""


def report() -> None:
    """To come."""

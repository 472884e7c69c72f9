"""Commands of `proxy`; what they need is imported when they run."""


def serve() -> None:
    """To come."""


def check() -> None:
    """To come."""

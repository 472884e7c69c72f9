"""Text that a peer chose, as a log or a terminal may show it."""


def printable(text: str) -> str:
    """Return a text without what a terminal would obey: each such character is U+FFFD."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)

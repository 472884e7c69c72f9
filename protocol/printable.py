"""Text that a peer chose, as a log or a terminal may show it."""


def printable(text: str) -> str:
    r"""Return a text with all that a terminal would obey, or that cannot be seen, escaped: `\x9b`, `\u202e`, `\n`.

    These are the controls of ASCII and of Latin-1 (C1), those of the direction of writing, separators of lines and
    paragraphs, blanks other than the space, halves of surrogate pairs, and what Unicode has not assigned.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)

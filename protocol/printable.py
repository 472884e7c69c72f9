"""Text that a peer chose, as a log or a terminal may show it."""

import json


def printable(text: str) -> str:
    r"""Return a text with all that a terminal would obey, or that cannot be seen, escaped: `\x9b`, `\u202e`, `\n`.

    These are the controls of ASCII and of Latin-1 (C1), those of the direction of writing, separators of lines and
    paragraphs, blanks other than the space, halves of surrogate pairs, and what Unicode has not assigned.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_json(text: str) -> str:
    r"""Return a JSON text with the same characters escaped as JSON has it: `\u009b`, `\u202e`. Its lines stay.

    Args:
        text: A JSON text, in which such characters are in strings alone.
    """
    return "\n".join(_escaped_as_json(line) for line in text.split("\n"))


def _escaped_as_json(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)

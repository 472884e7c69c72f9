"""What a counter counts: read from it, so that no name is forgotten; compiled classes have no `__slots__` to tell."""

from typing import Any


def attributes(of: object) -> dict[str, Any]:
    return {name: value for name in dir(of) if name[0] != "_" and not callable(value := getattr(of, name))}

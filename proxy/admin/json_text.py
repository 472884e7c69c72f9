"""The JSON of answers. Clients choose names, and an answer may be shown by a terminal, which obeys some characters."""

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

import msgspec

_OBEYED: Final = (
    *((0x7F, 0x9F), (0xAD, 0xAD), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F), (0x890, 0x891)),
    *((0x8E2, 0x8E2), (0x180E, 0x180E), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0xFEFF, 0xFEFF)),
    *((0xFFF9, 0xFFFB), (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3)),
    *((0x1D173, 0x1D17A), (0xE0001, 0xE0001), (0xE0020, 0xE007F)),
)
"""Controls, characters that order or hide text, ends of lines: Unicode's Cc, Cf, Zl and Zp above those of ASCII."""


def _escape(code: int) -> str:
    units = chr(code).encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


_ESCAPES: Final = {
    code: _escape(code) for code in chain.from_iterable(range(first, last + 1) for first, last in _OBEYED)
}


_IS_OBEYED: Final = re.compile(f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in _OBEYED)}]")
_PIECE: Final = 4096
"""Characters that one call of C looks at: 0.02 to 0.5 ms, during which no other thread runs."""


def json_of(value: Any) -> bytes:
    """Return the JSON of a value, without any character that a terminal obeys."""
    return escaped(msgspec.json.encode(value))


def json_with(members: Mapping[str, Any], **lists: Iterable[bytes]) -> bytes:
    """Return the JSON of an object whose last members are lists.

    Args:
        members: The other members.
        lists: The values of each list, each as `json_of` returns it.
    """
    parts = [json_of(members)[1:-1]] if members else []
    parts += [b'"%b":[%b]' % (name.encode(), b",".join(values)) for name, values in lists.items()]
    return b"{%b}" % b",".join(parts)


def escaped(text: bytes) -> bytes:
    """Return a JSON text with escapes in place of characters that a terminal obeys."""
    if text.isascii() and b"\x7f" not in text:
        return text
    read = text.decode()
    return "".join([_escaped(read[at : at + _PIECE]) for at in range(0, len(read), _PIECE)]).encode()


def _escaped(piece: str) -> str:
    if (piece.isascii() and "\x7f" not in piece) or _IS_OBEYED.search(piece) is None:
        return piece
    return piece.translate(_ESCAPES)

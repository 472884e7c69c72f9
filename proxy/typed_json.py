"""JSON as values of a type, in any thread.

The first decoder of a type fills in what msgspec knows of that type. If two threads do that at once, one may read what
is not there yet, and the process ends with a segmentation fault (seen with 0.22). So the proxy makes decoders here,
one after the other.
"""

from threading import Lock
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_making = Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
"""One for each type; types are of the code, so they are few."""


def decode(text: bytes | str, kind: type[T]) -> T:
    """Read a value of a type.

    Raises:
        msgspec.DecodeError: If the text is none.
        UnicodeDecodeError: If the bytes are no UTF-8.
        RecursionError: If it nests too deeply.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        with _making:
            decoder = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    value: T = decoder.decode(text)
    return value

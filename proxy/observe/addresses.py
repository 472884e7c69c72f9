"""Client addresses as the access log shows them: as they are, or a keyed hash in their place.

`HASH` is `k` with four digits of the key's own hash, a colon, and sixteen of the address's: so addresses under two keys
are never taken for the same or for two clients. Whoever has the key can try out all addresses; without it nobody can.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from proxy.files import MOST_SECRET, read_file

SHORTEST_KEY = 16
"""Bytes: fewer could be guessed."""

Shown = Callable[[str], str]
"""Of an address without a port."""


class AddressKeyError(Exception):
    """The key cannot be used; the text says which file and why."""


def as_they_are(address: str) -> str:
    """No hash."""
    return address


def hashed(key: bytes) -> Shown:
    """Hashes under `key`."""
    secret = hashlib.blake2b(key, digest_size=32).digest()
    name = hashlib.blake2b(secret, digest_size=2, person=b"key").hexdigest()

    def shown(address: str) -> str:
        return f"k{name}:{hashlib.blake2b(address.encode(), digest_size=8, key=secret).hexdigest()}"

    return shown


def read_key(path: Path) -> bytes:
    """The key in a file, spaces and newlines around it left out.

    Raises:
        AddressKeyError: If it cannot be read or is too short.
    """
    try:
        key = read_file(path, MOST_SECRET).strip()
    except OSError as error:
        raise AddressKeyError(f"{path}: cannot be read: {error.strerror}") from None
    if len(key) < SHORTEST_KEY:
        raise AddressKeyError(
            f"{path}: holds {len(key)} bytes; a key has at least {SHORTEST_KEY}: openssl rand -hex 32"
        )
    return key

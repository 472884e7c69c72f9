"""Payloads that name their message, so that the receiving end detects loss, repetition, disorder and damage.

[magic: 4][run: 8][producer: 4][sequence: 8][CRC32 of all the rest: 4][filler up to the message's size]
"""

import zlib
from dataclasses import dataclass
from struct import Struct

MAGIC = b"SLLD"
_IDENTITY = Struct(">4s8sIQ")
_CHECKSUM = Struct(">I")
HEADER_BYTES = _IDENTITY.size + _CHECKSUM.size
"""The smallest message that can say which one it is."""
RUN_BYTES = 8


class NotOursError(Exception):
    """The payload was not made by a load generator."""


class DamagedError(Exception):
    """The payload was made by a load generator, and has been changed."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The identity of a message."""

    run: bytes
    """8 bytes that distinguish runs."""
    producer: int
    sequence: int


def make_payload(stamp: Stamp, size: int) -> bytes:
    """A payload of `size` bytes, at least `HEADER_BYTES`, that carries `stamp`."""
    identity = _IDENTITY.pack(MAGIC, stamp.run, stamp.producer, stamp.sequence)
    filler = bytes([stamp.sequence & 0xFF]) * (size - HEADER_BYTES)
    return identity + _CHECKSUM.pack(_checksum(identity, filler)) + filler


def read_payload(payload: bytes) -> Stamp:
    """Read the identity of a message.

    Raises:
        NotOursError: If it does not start as a load generator's payload does.
        DamagedError: If it does, and its checksum does not fit.
    """
    if not payload.startswith(MAGIC):
        raise NotOursError
    if len(payload) < HEADER_BYTES:
        raise DamagedError
    identity, filler = payload[: _IDENTITY.size], payload[HEADER_BYTES:]
    (expected,) = _CHECKSUM.unpack_from(payload, _IDENTITY.size)
    if _checksum(identity, filler) != expected:
        raise DamagedError
    _, run, producer, sequence = _IDENTITY.unpack(identity)
    return Stamp(run, producer, sequence)


def _checksum(identity: bytes, filler: bytes) -> int:
    return zlib.crc32(filler, zlib.crc32(identity))

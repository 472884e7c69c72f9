"""What arguments may be; what is not gets one line that says what belongs there."""

import argparse
import math

LARGEST_FRAME = 5 * 1024 * 1024
"""Bytes: what clients and brokers send at most, unless told otherwise."""
_LONGEST_S = 3600.0


def count(text: str) -> int:
    """A whole number above 0.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number above 0 belongs here")
    return int(text)


def seconds(text: str) -> float:
    """A time above 0, of an hour at most.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds belong here, above 0 and up to {_LONGEST_S:g}")
    return found


def kind(text: str) -> tuple[int, int]:
    """A chunk of FRAMESxBYTES: how many frames, and of how many bytes each.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    frames, _, size = text.partition("x")
    try:
        found = count(frames), count(size)
    except argparse.ArgumentTypeError:
        found = 0, 0
    if not 0 < found[0] * found[1] <= LARGEST_FRAME:
        what = f"FRAMESxBYTES belongs here, both above 0, {LARGEST_FRAME:,} bytes together at most: 8x100"
        raise argparse.ArgumentTypeError(f"{text!r}: {what}")
    return found

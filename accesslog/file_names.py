"""The compressions of the access log's files, and the suffixes by which their names tell them.

The proxy writes each of these compressions (its codec is in `proxy/observe/log_writer.py`), and readers read each (the
codec of `compliance/stream/log_file.py`).
"""

from collections.abc import Mapping
from typing import Literal

Compression = Literal["zstd", "none"]
SUFFIXES: Mapping[Compression, str] = {"zstd": ".jsonl.zst", "none": ".jsonl"}
READABLE_SUFFIXES = tuple(SUFFIXES.values())
UNREADABLE_SUFFIXES = tuple(f".jsonl.{suffix}" for suffix in ("gz", "bz2", "xz", "lz4", "snappy", "zip"))
"""Suffixes of files that other programs compressed: they may hold lines, but no reader of the log reads them."""
PATTERNS = tuple(f"*{suffix}" for suffix in READABLE_SUFFIXES)
"""Patterns of the names of closed files, for messages."""


def compression_of(name: str) -> Compression:
    """Return the compression that the name of a closed file tells; `none` if the name has no suffix of another."""
    return next((compression for compression, suffix in SUFFIXES.items() if name.endswith(suffix)), "none")

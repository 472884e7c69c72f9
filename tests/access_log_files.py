"""Reads the files of an access log, compressed or not."""

from pathlib import Path

from backports import zstd

from accesslog.file_names import compression_of


def content_of(file: Path) -> bytes:
    """The lines in a file. A compressed one must be a whole frame."""
    content = file.read_bytes()
    return zstd.decompress(content) if compression_of(file.name) == "zstd" else content


def content_so_far(file: Path) -> bytes:
    """The lines in a file that may be written to at this moment."""
    content = file.read_bytes()
    is_compressed = compression_of(file.name.removesuffix(".open")) == "zstd"
    return zstd.ZstdDecompressor().decompress(content) if is_compressed else content


def closed_files(folder: Path, pattern: str = "*") -> list[Path]:
    """The closed files in a folder, in the order in which they were written."""
    return sorted(file for file in folder.glob(f"{pattern}.jsonl*") if file.name[0] != ".")

"""Files of this machine or of an object store, as driver and tasks alike read and write them, without Java.

Places are texts: plain paths, or URIs as Spark takes them. Credentials of an object store are those that its own tools
find in the environment.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from pyarrow import NativeFile, OSFile, fs

from compliance.log_folder import on_this_machine

_OF_HADOOP = {"s3a": "s3", "s3n": "s3", "gs": "gs", "wasbs": "abfss"}
"""Schemes that Hadoop has for what Arrow names otherwise."""
_HALF = ".half"
"""The end of the name of a file that is being written; Spark and the job pass over names with a dot before them."""


class StoredFile(NamedTuple):
    """A file in a folder: its name and size."""

    name: str
    size: int


T = TypeVar("T")


def in_parts(items: Iterable[T], amounts: Callable[[T], tuple[int, ...]], most: tuple[int, ...]) -> list[list[T]]:
    """Cut work into parts of at most `most` in all amounts, each as long as it can be; a larger item is a part itself.

    Args:
        items: Files, or parts of them, in their order.
        amounts: Returns the amounts of an item, as its bytes.
        most: The most of each amount in one part.
    """
    parts: list[list[T]] = []
    room: tuple[int, ...] = ()
    for item in items:
        own = amounts(item)
        if not parts or any(amount > left for amount, left in zip(own, room, strict=True)):
            parts.append([])
            room = most
        parts[-1].append(item)
        room = tuple(left - amount for amount, left in zip(own, room, strict=True))
    return parts


def read(place: str) -> bytes:
    """Return a file's content.

    Raises:
        OSError: If there is none, or it cannot be read.
    """
    with opened(place) as stream:
        return stream.read()


def opened(place: str) -> BinaryIO:
    """Open a file for reading."""
    if local := on_this_machine(place):
        return local.open("rb")
    system, path = _remote(place)
    stream: BinaryIO = system.open_input_stream(path)
    return stream


def at_random(place: str) -> NativeFile:
    """Open a file for reading here and there, as Parquet is read."""
    if local := on_this_machine(place):
        return OSFile(str(local))
    system, path = _remote(place)
    return system.open_input_file(path)


def write(place: str, content: bytes | memoryview) -> None:
    """Write a file; a reader finds the file before or the new one, and each whole.

    A file of an object store appears when all of it is there; on this machine it is written aside and renamed.
    """
    local = on_this_machine(place)
    if local is None:
        system, path = _remote(place)
        with system.open_output_stream(path) as stream:
            stream.write(content)
        return
    local.parent.mkdir(parents=True, exist_ok=True)
    # Of the same task's second attempt: both write the same, but not into one file.
    half = local.with_name(f".{local.name}.{os.getpid()}{_HALF}")
    try:
        half.write_bytes(content)
        half.replace(local)
    except OSError as error:
        half.unlink(missing_ok=True)
        # Of a full disk Python does not say which file it was.
        raise OSError(error.errno, error.strerror, str(local)) from error


def files(folder: str) -> list[StoredFile]:
    """List the files of a folder, by name; none if there is no such folder."""
    return sorted(StoredFile(name, size) for name, size in _entries(folder) if size is not None)


def folders(folder: str) -> list[str]:
    """List the names of the folders in a folder, sorted; none if there is no such folder."""
    return sorted(name for name, size in _entries(folder) if size is None)


def exists(place: str) -> bool:
    """Return whether there is a file of that name."""
    if local := on_this_machine(place):
        return local.is_file()
    system, path = _remote(place)
    return bool(system.get_file_info(path).type == fs.FileType.File)


def holds(place: str, content: bytes) -> bool:
    """Return whether there is a file of that name with this content."""
    return exists(place) and read(place) == content


def remove(place: str) -> None:
    """Remove a file; it need not be there."""
    if local := on_this_machine(place):
        local.unlink(missing_ok=True)
        return
    system, path = _remote(place)
    if exists(place):
        system.delete_file(path)


def remove_folder(folder: str) -> None:
    """Remove a folder with all its files; it need not be there."""
    for name in folders(folder):
        remove_folder(f"{folder}/{name}")
    for name, _ in files(folder):
        remove(f"{folder}/{name}")
    if (local := on_this_machine(folder)) and local.is_dir():
        local.rmdir()


def move(source: str, target: str) -> None:
    """Rename a file, over another if there is one."""
    local, to = on_this_machine(source), on_this_machine(target)
    if local and to:
        to.parent.mkdir(parents=True, exist_ok=True)
        local.replace(to)
        return
    system, path = _remote(source)
    system.move(path, _remote(target)[1])


def _entries(folder: str) -> Iterator[tuple[str, int | None]]:
    """Names in a folder, with the sizes of files; None for folders."""
    if local := on_this_machine(folder):
        try:
            with os.scandir(local) as entries:
                for entry in entries:
                    yield entry.name, None if entry.is_dir() else entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            return
        return
    system, path = _remote(folder)
    for info in system.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        yield info.base_name, info.size if info.type == fs.FileType.File else None


def _remote(place: str) -> tuple[Any, str]:
    scheme, _, rest = place.partition("://")
    host, _, path = rest.partition("/")
    system, base = _system(f"{_OF_HADOOP.get(scheme.lower(), scheme)}://{host}/")
    return system, "/".join(filter(None, (base.rstrip("/"), path)))


@cache
def _system(uri: str) -> tuple[Any, str]:
    system, base = fs.FileSystem.from_uri(uri)
    return system, base


@contextlib.contextmanager
def locked(folder: Path, taken: Exception) -> Iterator[None]:
    """Hold the lock of a folder of this machine, which ends with the process; raises `taken` if another one has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise taken from None
        yield

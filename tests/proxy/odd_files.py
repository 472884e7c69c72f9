"""What may stand where a file should be, and what is said of it."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

SPARSE = 1024**3


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def bound_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def link_loop(path: Path) -> Path:
    path.symlink_to(path.name)
    return path


def broken_link(path: Path) -> Path:
    path.symlink_to("nowhere")
    return path


def link_to_fifo(path: Path) -> Path:
    path.symlink_to(fifo(path.with_name("fifo")))
    return path


def sparse(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(SPARSE)
    return path


ODD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a FIFO": (fifo, "it is a FIFO; only regular files are read"),
    "a link to one": (link_to_fifo, "it is a FIFO; only regular files are read"),
    "a socket": (bound_socket, "it is a socket; only regular files are read"),
    "a folder": (folder, "it is a directory; only regular files are read"),
    "a link loop": (link_loop, "Too many levels of symbolic links"),
    "a broken link": (broken_link, "No such file or directory"),
    "an endless device": (lambda _: Path("/dev/zero"), "it is a device; only regular files are read"),
    "a sparse file of 1 GiB": (sparse, "the most that is read"),
}

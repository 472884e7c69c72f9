"""Read files that others name or may put in place, and replace files whole or not at all.

Only regular files are read, without waiting, up to a bound. Opening a FIFO waits for its other end, and a device may
have no end; either would stop a reload, or the end of the process, for ever. Links are followed where an operator names
the file (Kubernetes mounts are links). They are never followed in the folder of the access log, where a link was not
made by the proxy.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

MOST_CONFIG = 64 * 1024**2
"""Most bytes of a configuration; one of 100,000 topics with a limit for each direction has 22 MiB."""
MOST_PEM = 1024**2
"""Most bytes of certificates or a key; the authorities that a Linux distribution trusts have 220 KiB."""
MOST_SECRET = 64 * 1024
"""Most bytes of a file with a single token or key."""
_MOST_LOGGED = 20
"""Entries of one file that are passed over, and get a line of the log each."""
_PIECE = 1024**2
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a directory",
}
_ASIDE = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def files_in(folder: Path) -> list[Path]:
    """Return the configuration files in a folder, in the order of their names; hidden files are none.

    Raises:
        OSError: If the folder cannot be read.
    """
    return sorted(each for each in folder.iterdir() if each.suffix in {".yaml", ".yml"} and each.name[0] != ".")


class FileReader(NamedTuple):
    """Reads the files of one key of the configuration again, apart from those of all others.

    Attributes:
        key: The key: `tls`, `authentication.token.jwks`.
        read: Reads the files, in a thread. Returns the function that puts them in force, on the loop, and cannot fail;
            it may return a large dict that is not used any more. Raises ConfigError if the files cannot be used; those
            that were read before then stay in force, unless the error has a `take` for a part of them.
    """

    key: str
    read: Callable[[], Callable[[], object]]


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, and nothing else; return its descriptor.

    Raises:
        OSError: If the file cannot be opened, or is not regular; `strerror` names its type.
    """
    try:
        descriptor = os.open(path, flags | _ASIDE, 0o666)
    except OSError as error:
        raise _explained(error, flags, path) from None
    try:
        check_regular(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(status: os.stat_result, path: Path) -> None:
    """Check that a file is a regular one.

    Raises:
        OSError: If it is not; EINVAL.
    """
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
        raise OSError(errno.EINVAL, f"it is {kind}; only regular files are read", str(path))


def read_file(path: Path, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes.

    Raises:
        OSError: If the file cannot be read, is not regular, or is larger; `strerror` says so.
    """
    with _opened(path, most) as descriptor:
        content = bytearray()
        while len(content) <= most and (piece := os.read(descriptor, _PIECE)):
            content += piece
    _check_size(len(content), most, path)
    return bytes(content)


@contextmanager
def replacing(path: Path, mode: int, *, is_new: bool = False) -> Iterator[BinaryIO]:
    """Yield an empty file that takes the place of another one, whole and on disk, when the block ends without an error.

    Until then it is named `.NAME.new`. If the process is killed, that file stays, and the next call removes it.

    Args:
        path: The file to replace. A link is replaced itself.
        mode: Permissions of the file, less those of the umask.
        is_new: Whether a file that is there is an error, and stays.

    Raises:
        OSError: If the file cannot be written, or (FileExistsError) is there though `is_new`.
    """
    made = path.with_name(f".{path.name}.new")
    made.unlink(missing_ok=True)
    try:
        with open(made, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file)
        if is_new:
            path.hardlink_to(made)  # unlike a rename, this fails if there is a file by now
        else:
            made.replace(path)
    finally:
        with suppress(OSError):
            made.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder onto the disk.

    Raises:
        OSError: If the folder cannot be opened, or the disk fails.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def reopenable(path: Path, most: int = MOST_PEM) -> Iterator[str]:
    """Yield a path to this very file, valid while the block lasts: for libraries that open files themselves.

    Raises:
        OSError: As `read_file`.
    """
    with _opened(path, most) as descriptor:
        yield f"/dev/fd/{descriptor}"


@contextmanager
def _opened(path: Path, most: int) -> Iterator[int]:
    descriptor = open_regular(path)
    try:
        _check_size(os.fstat(descriptor).st_size, most, path)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_size(size: int, most: int, path: Path) -> None:
    if size > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes, the most that is read", str(path))


def _explained(error: OSError, flags: int, path: Path) -> OSError:
    """Return a better error for sockets, FIFOs without another end, and links that are not followed."""
    try:
        check_regular(path.stat(follow_symlinks=not flags & os.O_NOFOLLOW), path)
    except OSError as unfit:
        if unfit.errno == errno.EINVAL:
            return unfit
    return error


def unread(error: OSError) -> str:
    """Return the words for a file that cannot be read, with the remedy."""
    remedy = _REMEDIES.get(error.errno or 0)
    return f"cannot be read: {error.strerror}" + (f"; {remedy}" if remedy else "")


_REMEDIES = {
    errno.ENOENT: "make this file, or name another",
    errno.ENOTDIR: "make this file, or name another",
    errno.EACCES: "let this user read it, by chmod or chown, or name another",
}


def warn_if_others_read(path: Path, key: str) -> None:
    """Warn if other users of the machine can read a secret's file.

    This is no error: Kubernetes mounts secrets like this by default, on machines without other users.
    """
    import structlog  # noqa: PLC0415 - commands read files, too, and log nothing: a quarter of their start

    if path.stat().st_mode & stat.S_IROTH:
        structlog.get_logger().warning("others can read this secret: chmod o-r", key=key, file=str(path))


def warn_of_passed_over(event: str, key: str, file: str, reasons: Sequence[str]) -> None:
    """Warn of each entry of a file that is passed over because it cannot be used, while the others are taken.

    Args:
        event: The event's name in the log.
        key: The key of the configuration that names the file.
        file: The file.
        reasons: The place of each entry, and why it cannot be used.
    """
    import structlog  # noqa: PLC0415 - as above

    log = structlog.get_logger().bind(key=key, file=file)
    for reason in reasons[:_MOST_LOGGED]:
        log.warning(event, reason=reason)
    if len(reasons) > _MOST_LOGGED:
        log.warning("more entries of this file are passed over", entries=len(reasons) - _MOST_LOGGED)


class TokenFileError(OSError):
    """A file of a token cannot be used; the text names the file, and never shows its content."""


def read_token(path: Path) -> str:
    """Return the token in a file.

    Raises:
        TokenFileError: If the file cannot be read, or does not hold exactly one token.
    """
    try:
        token = read_file(path, MOST_SECRET).decode("ascii").strip()
    except OSError as error:
        raise TokenFileError(f"{path}: {unread(error)}") from None
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise TokenFileError(f"{path}: must hold one token in one line, and nothing else")
    return token

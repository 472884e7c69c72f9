"""Where the result goes: checked as `sluice check` checks it, and never over a file that is there."""

import tempfile
from contextlib import suppress
from pathlib import Path

from proxy.config.model import ConfigError, load_config
from proxy.importing.found import ImportFailed


def check_text(text: str) -> None:
    """Read the result as the proxy will.

    Raises:
        ImportFailed: If the proxy would refuse it, with its own words.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-import-") as folder:
        path = Path(folder) / "result.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            load_config(path, {})
        except ConfigError as error:
            told = [problem.replace(str(path), "the result would not be accepted") for problem in error.problems]
            raise ImportFailed(told) from None


def check_output(path: Path, *, force: bool) -> None:
    """See that the result may be written there, before any work is done.

    Raises:
        ImportFailed: If it may not.
    """
    if path.exists() and not path.is_file():
        raise ImportFailed([f"{path}: is not a file; name one with --output, or leave it out for standard output"])
    if path.exists() and not force:
        raise ImportFailed([f"{path}: is there already; name another file with --output, or overwrite it with --force"])
    if not path.parent.is_dir():
        raise ImportFailed([f"{path}: there is no folder {path.parent}; make it first"])


def write_output(path: Path, text: str, *, force: bool) -> None:
    """Write the result, whole or not at all.

    Raises:
        ImportFailed: If it cannot be written, or a file has come there meanwhile.
    """
    check_output(path, force=force)
    whole = path.resolve()
    new = whole.with_name(f".{whole.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        if force:
            new.replace(whole)
        else:
            whole.hardlink_to(new)  # unlike a rename, this fails if there is a file by now
    except OSError as error:
        raise ImportFailed([f"{path}: cannot be written: {error.strerror}"]) from None
    finally:
        with suppress(OSError):
            new.unlink()

"""The options `--output` and `--force` of commands that write a file, and the writing."""

from pathlib import Path
from typing import Annotated

import typer

from proxy.files import replacing

Output = Annotated[Path | None, typer.Option(metavar="FILE", help="File for the YAML. Default: standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file that --output names.")]


class OutputError(Exception):
    """The file that `--output` names cannot be written; the text names it, with the remedy."""


def check_output(path: Path, *, force: bool) -> None:
    """Check that the result may be written to this path, before any work is done.

    Raises:
        OutputError: If there is a file without `force`, or the path is not a file in an existing folder.
    """
    if path.exists() and not path.is_file():
        raise OutputError(f"{path}: is not a file; name one with --output, or leave it out for standard output")
    if path.exists() and not force:
        raise OutputError(f"{path}: is there already; name another file with --output, or overwrite it with --force")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: there is no folder {path.parent}; make it first")


def write_output(path: Path, text: str, *, force: bool) -> None:
    """Write the result, whole or not at all; a link stays, and the file that it names is replaced.

    Raises:
        OutputError: If the file cannot be written, or was made by another process.
    """
    check_output(path, force=force)
    try:
        with replacing(path.resolve(), 0o666, is_new=not force) as file:
            file.write(text.encode())
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None

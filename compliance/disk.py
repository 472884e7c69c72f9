"""Which folder is in trouble, and what helps, where a disk is full, a permission is missing or a name is none."""

from collections.abc import Mapping

from compliance.place import on_this_machine

_ROOM = "make room there"
_RIGHT = "let this user read and write there"
_REMEDIES = {
    "No space left on device": _ROOM,
    "Disk quota exceeded": _ROOM,
    "Permission denied": _RIGHT,
    "Operation not permitted": _RIGHT,
    "Read-only file system": "have it mounted for writing",
    "Relative path in absolute URI": "rename the file: no name that Hadoop reads may have a colon",
}
"""As the system says it; Java and Python pass that on. The last: Hadoop, of names that are legal elsewhere."""
_MAY_READ = "let this user read there"
_LOG = "--access-log"
_UNNAMED = "--out or Spark's own folder (--spark spark.local.dir=DIR)"


def disk_trouble(said: str, folders: Mapping[str, str]) -> str | None:
    """What to say of an error that a folder is the reason for; None if it is another one.

    Args:
        said: The cause, as Java or Python put it, most often with the file.
        folders: Those that the user named, paths or URLs, by their options.
    """
    remedy = next((remedy for reason, remedy in _REMEDIES.items() if reason in said), None)
    if remedy is None:
        return None
    # The longest: one may lie in the other.
    named = max(
        ((option, folder) for option, folder in folders.items() if _is_in(folder, said)), key=_length, default=None
    )
    if named and named[0] == _LOG and remedy == _RIGHT:
        remedy = _MAY_READ
    return f"{' '.join(named) if named else _UNNAMED}: {said}; {remedy}"


def _is_in(folder: str, said: str) -> bool:
    return bool(folder) and str(on_this_machine(folder) or folder) in said


def _length(named: tuple[str, str]) -> int:
    return len(named[1])

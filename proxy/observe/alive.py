"""The sign that a run of the proxy lives: a locked file, by which the next run sees that it was killed.

Whoever ends in order while the disk takes nothing leaves it, too: nobody else could say that lines are lost.
"""

import fcntl
from contextlib import suppress
from io import FileIO
from pathlib import Path

from proxy.files import open_regular
from proxy.observe.log_file import NEW
from proxy.observe.log_names import alive_name


class Alive:
    """Is there from the start of a run until its orderly end.

    Args:
        folder: Of the access log.
        proxy_id: Which proxy this is.
        boot_id: Which run of it.

    Raises:
        OSError: If it cannot be made.
    """

    def __init__(self, folder: Path, proxy_id: str, boot_id: str) -> None:
        self._folder, self._proxy_id, self._boot_id = folder, proxy_id, boot_id
        self._path = folder / alive_name(proxy_id, boot_id)
        self._file = self._make()

    def be_there(self) -> None:
        """Make it again if somebody deleted it.

        Raises:
            OSError: If it cannot be made.
        """
        if not self._path.exists():
            self._file.close()
            self._file = self._make()

    def declared(self, boot_id: str) -> None:
        """The log says what this run, or another one that was killed, has lost; if it was another, its sign may go."""
        if boot_id != self._boot_id:
            with suppress(OSError):
                (self._folder / alive_name(self._proxy_id, boot_id)).unlink(missing_ok=True)

    def end(self, *, is_whole: bool = True) -> None:
        """The run is over, its log written to the end; if not, the sign stays, and the next run says what is lost."""
        if is_whole:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._file.close()

    def _make(self) -> FileIO:
        file = FileIO(open_regular(self._path, NEW), "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

"""Files on whatever storage Spark writes: a folder of this machine, HDFS, an object store."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


class Storage:
    """Hadoop's file systems, as far as the job needs them. Paths are texts, with or without a scheme.

    Args:
        spark: The session, for its configuration of file systems.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm  # noqa: SLF001 - the only way to Hadoop's file systems from Python
        self._settings = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of that name."""
        return bool(self._system(path).exists(self._path(path)))

    def names(self, folder: str) -> list[str]:
        """Names of what is in a folder, sorted; none if it is not there."""
        if not self.exists(folder):
            return []
        return sorted(str(one.getPath().getName()) for one in self._system(folder).listStatus(self._path(folder)))

    def remove(self, path: str) -> None:
        """Removes a file, or a folder and all in it; it need not be there."""
        self._system(path).delete(self._path(path), True)

    def move(self, source: str, target: str) -> None:
        """Renames a file or folder over another."""
        self.remove(target)
        system = self._system(target)
        system.mkdirs(self._path(target).getParent())
        if not system.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} cannot be renamed to {target}")

    def read(self, path: str) -> bytes:
        """A file's content."""
        if here := self._here(path):
            return here.read_bytes()
        stream = self._system(path).open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, path: str, content: bytes) -> None:
        """Writes a file; a reader sees the old one or the new one whole, where renaming is atomic."""
        half = f"{path.rpartition('/')[0]}/_{path.rpartition('/')[2]}.half"
        self.put(half, content)
        self.move(half, path)

    def put(self, path: str, content: bytes) -> None:
        """Writes a file that nobody reads yet."""
        if here := self._here(path):
            _put_here(here, content)
            return
        stream = self._system(path).create(self._path(path), True)
        try:
            stream.write(content)
        finally:
            stream.close()

    def _here(self, path: str) -> Path | None:
        """Where it is, if it is on this machine: what passes through Java's door takes ten times as long."""
        place = self._path(path)
        system = place.getFileSystem(self._settings)
        return Path(place.toUri().getPath()) if system.getScheme() == "file" else None

    def _path(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._settings)


def _put_here(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_bytes(content)
    except OSError as error:
        # Of a full disk Python does not say which file it was.
        raise OSError(error.errno, error.strerror, str(path)) from error

"""The configuration's file, or the files of a folder merged by key, as they are written, with their mistakes."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proxy.bulk import let_go
from proxy.config.sources import SourceFile, kind_of, yaml_problem_text
from proxy.config.yaml_reader import KeyPath, YamlError, YamlProblem, lines_of, parse_yaml
from proxy.files import MOST_CONFIG, files_in, read_file
from proxy.mistakes import Mistake

MOST_SHOWN = 50
"""Problems of values that are shown; the others are counted."""
_MOST_FILES = 1000
"""Files of a folder."""
_IS_NO_FILE_OF_OURS = re.compile(r"\..*|.*~|.*\.sw[a-p]|#.*#", re.DOTALL)
"""Names of hidden files, as Kubernetes has them in a mounted ConfigMap, and of copies that editors make."""


class File:
    """A file of the configuration, as far as it can be read; without a path there is nothing in it.

    Args:
        path: The file.
        text: Its text; None: it is read.

    Attributes:
        text: Its text; None if it cannot be read.
        values: Its content, as far as it is YAML.
        problems: Its mistakes, a line each.
        wrong: The mistakes of its YAML.
        is_whole: Whether `values` has all keys that are not within those of `wrong`.
    """

    def __init__(self, path: Path | None, text: str | None = None) -> None:
        self.path = path
        self.text = text
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        self.wrong: tuple[YamlProblem, ...] = ()
        self.is_whole = True
        if path is None:
            return
        try:
            content = read_file(path, MOST_CONFIG) if text is None else b""
            self.text = content.decode("utf-8-sig", "replace") if text is None else text
            content.decode()
            self._take(parse_yaml(self.text))
        except OSError as error:
            self._cannot_be_read(f"{path}: cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            self._cannot_be_read(f"{path}: is no UTF-8; save the file as UTF-8")
        except YamlError as error:
            self.wrong = error.problems
            self.is_whole = not error.is_of_syntax
            self.problems = [f"{path}:{_place(problem)}: {yaml_problem_text(problem)}" for problem in error.problems]
            self._take(error.values)

    @property
    def parts(self) -> tuple[SourceFile, ...]:
        """The file for `Sources`."""
        return (SourceFile(str(self.path), self.text or "", self.values),) if self.path else ()

    @property
    def mistakes(self) -> list[Mistake]:
        """The mistakes that are in the file whatever its values mean."""
        return [Mistake(problem, frozenset({str(self.path)})) for problem in self.problems[:1]]

    def is_read_at(self, key: Sequence[object]) -> bool:
        """Return whether everything at a key, and around it, was read: else an error there may be untrue."""
        path = tuple(map(str, key))
        return self.is_whole and not any(_is_within(path, each.key) for each in self.wrong if not each.is_twice)

    def let_go(self) -> None:
        """Empty the tables of values in pieces."""
        let_go(self.values)

    def _take(self, values: Any) -> None:
        if isinstance(values, dict):
            self.values = values
        elif values is not None:
            self._cannot_be_read(f"{self.path}: holds {kind_of(values)}, not keys with values as KEY: VALUE")

    def _cannot_be_read(self, problem: str) -> None:
        self.problems.append(problem)
        self.is_whole = False


class Folder:
    """The configuration's files in a folder, merged by key, as far as they can be read.

    Args:
        path: The folder.
        files: Its files; None: they are read.

    Attributes:
        files: The files.
        parts: The files for `Sources`.
        values: Their content; of a key that two files set, that of the first one.
        problems: Their mistakes, a line each.
        mistakes: The same: of a key that two files set, both are at fault.
    """

    def __init__(self, path: Path, files: Mapping[Path, File] | None = None) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        self.files = dict(files if files is not None else self._read())
        self.mistakes = [Mistake(problem) for problem in self.problems]
        for each, file in self.files.items():
            has_nothing = not file.values and not file.problems
            empty = f"{each}: has no keys; remove the file, or write limits: {{}}, so that no half of a file is taken"
            problems = [empty] if has_nothing else file.problems
            self.problems += problems
            self.mistakes += [Mistake(problem, frozenset({str(each)})) for problem in problems[:1]]
        self.parts = tuple([part for file in self.files.values() for part in file.parts])
        twice: dict[KeyPath, list[SourceFile]] = {}
        for part in self.parts:
            self._merge(self.values, part, part.values, (), twice)
        self._report(twice)

    def let_go(self) -> None:
        """Empty the tables of values in pieces: to free those of 270,000 limits at once takes 40 ms."""
        let_go(self.values)
        for file in self.files.values():
            file.let_go()

    @property
    def text(self) -> str:
        """The text of the whole: each part has its own."""
        return ""

    def is_read_at(self, key: Sequence[object]) -> bool:
        """Return whether everything at a key, and around it, was read in all files."""
        return all(file.is_read_at(key) for file in self.files.values())

    def _read(self) -> dict[Path, File]:
        try:
            paths = files_in(self.path)
        except OSError as error:
            self.problems.append(f"{self.path}: cannot be read: {error.strerror}")
            return {}
        if len(paths) > _MOST_FILES:
            self.problems.append(f"{self.path}: has {len(paths)} files, and at most {_MOST_FILES} are read: join some")
        elif not paths:
            self.problems.append(f"{self.path}: it is a directory that has no file NAME.yaml")
        return {each: File(each) for each in paths[:_MOST_FILES]}

    def _merge(
        self,
        section: dict[str, Any],
        part: SourceFile,
        values: Mapping[str, Any],
        above: KeyPath,
        twice: dict[KeyPath, list[SourceFile]],
    ) -> None:
        """Take a file's values into a section, and note keys that are there already: of each file a few."""
        noted = 0
        for name, value in values.items():
            key = (*above, name)
            if name not in section:
                section[name] = value
            elif isinstance(value, dict) and isinstance(section[name], dict):
                section[name] = dict(section[name])
                self._merge(section[name], part, value, key, twice)
            elif noted < MOST_SHOWN:
                noted += 1
                if key not in twice:
                    twice[key] = [next(each for each in self.parts if each.has(key))]
                twice[key].append(part)

    def _report(self, twice: Mapping[KeyPath, list[SourceFile]]) -> None:
        """Report keys that are set in several files."""
        shown = [(key, part, parts[0]) for key, parts in twice.items() for part in parts[1:]]
        more, shown = len(shown) - MOST_SHOWN, shown[:MOST_SHOWN]
        named = {each.name: each for _, *both in shown for each in both}
        lines = {
            name: lines_of(part.text, [key for key, *both in shown if part in both]) for name, part in named.items()
        }
        for key, *both in shown:
            at, other = (f"{each.name}:{lines[each.name].get(key, 1)}" for each in both)
            self.problems.append(f"{at}: {'.'.join(key)}: is set in {other} as well; keep it in one of the files")
        if more > 0:
            self.problems.append(f"{self.path}: {more} more keys at least are set in two files")
        self.mistakes += [
            Mistake(f"{'.'.join(key)}: is set in two files", frozenset(each.name for each in parts))
            for key, parts in twice.items()
        ]


def passed_over(path: Path | None) -> list[str]:
    """Return a warning of each file in a folder of files that is no part of the configuration, and may be meant as one.

    Hidden files and editors' copies are not.
    """
    try:
        others = sorted({*path.iterdir()} - {*files_in(path)}) if path is not None and path.is_dir() else []
    except OSError:
        return []  # `read` reports it
    return [
        f"{each}: is passed over: only files NAME.yaml and NAME.yml are read; rename it, or take it away"
        for each in others
        if not _IS_NO_FILE_OF_OURS.fullmatch(each.name)
    ]


def read(path: Path | None) -> File | Folder:
    """Read a file, or the files of a folder; nothing without a path."""
    return Folder(path) if path is not None and path.is_dir() else File(path)


def _place(problem: YamlProblem) -> str:
    """The line, and the column where no key says more."""
    return f"{problem.line}:{problem.column}" if problem.is_of_syntax else str(problem.line)


def _is_within(path: KeyPath, other: KeyPath) -> bool:
    """Whether one of two places is in the other."""
    length = min(len(path), len(other))
    return path[:length] == other[:length]

"""The configuration read again while it is in force: of a folder, as many of its changed files as are good together.

Each mistake is laid on the files that have it. A file that is not taken has its content of before, which is wrong with
other changes perhaps, so the folder is looked at again, until it has no mistake:

    changed files ──▶ mistakes? ──no──▶ these are taken
          ▲               │ yes
          └─ without those at fault, and those that moved limits into them

- A mistake that one changed file alone can have is its own: the value is in it, or it has changed what an unchanged
  file refers to. Such files go first, as mistakes that several may have are often gone without them.
- Of a mistake that several may have, the file that refers to a value is at fault before the one that has changed it;
  of a key in two files, both are.
- A mistake between keys that Sluice knows no files of is found by halves: the first of the files with which it occurs.

A limit that moves from one file to another must not vanish because the other has a mistake: where a file that is not
taken has the name of a limit that no file has any more, the file that dropped it is not taken, either.
"""

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from limiter.names import EACH, PatternValues
from proxy.bulk import let_go
from proxy.config.limits import kept_name
from proxy.config.model import NO_VARIABLES, Config, ConfigError, Loaded, UsablePart, load
from proxy.config.sources import has
from proxy.config.written import File, Folder, read
from proxy.mistakes import Mistake, Place

_MOST_LOOKS: Final = 64
"""Looks at the whole folder; each takes as long as a start."""
_HEAD: Final = 3
"""Keys that name what is limited: `limits`, the section, the name."""
_WORD: Final = re.compile(r"[^\s{}\[\],'\"]+")
_ABSENT: Final = object()


class ConfigFiles:
    """The configuration's file or folder, read at the start and again while it is in force.

    Args:
        path: The file or folder.
        flags: The flags.
        environment: The variables.
    """

    def __init__(self, path: Path | None, flags: dict[str, Any], environment: Mapping[str, str] = NO_VARIABLES) -> None:
        self._path, self._flags, self._environment = path, flags, environment
        self._in_force: Mapping[Path, str] = {}
        """The texts of a folder's files that were last taken."""

    def read(self) -> Config:
        """Read the configuration for a start.

        Raises:
            ConfigError: With every problem, as `load_config`.
        """
        now = read(self._path)
        loaded = self._load(now)
        self._in_force = _texts(now)
        return loaded.config

    def reread(self) -> Config:
        """Read the configuration again while it is in force.

        Raises:
            ConfigError: As `load_config`, and if the file has no key: an emptied file would remove all limits. `usable`
                has what can be taken of a folder.
        """
        now = read(self._path)
        try:
            return self._reread(now)
        finally:
            now.let_go()

    def _reread(self, now: File | Folder) -> Config:
        try:
            loaded = self._load(now)
        except ConfigError as error:
            if not self._in_force or not isinstance(now, Folder) or not now.files:  # it was emptied, or is not mounted
                raise
            raise self._partly(now, error) from None
        if loaded.has_empty_file:
            raise ConfigError(
                [f"{self._path}: has no keys, so all stays as before; if nothing is to be limited, write limits: {{}}"]
            )
        self._in_force = _texts(now)
        return loaded.config

    def _load(self, written: File | Folder) -> Loaded:
        return load(self._path, self._flags, self._environment, written)

    def _partly(self, now: Folder, error: ConfigError) -> ConfigError:
        """Return the error with what is usable."""
        search = _Search(now, self._in_force, self._load)
        try:
            loaded = search.run(error)
        finally:
            search.let_go()
        if loaded is None:
            return ConfigError(search.problems)
        self._in_force = search.texts
        return ConfigError([*search.problems, *search.lines()], usable=search.part(loaded.config))


def _texts(written: File | Folder) -> Mapping[Path, str]:
    return {each: file.text or "" for each, file in written.files.items()} if isinstance(written, Folder) else {}


class _Change:
    """A file of the folder that has changed, that is new, or that is gone.

    Attributes:
        before: Its content in force.
        now: Its content as it is.
    """

    def __init__(self, before: File | None, now: File | None) -> None:
        self.before, self.now = before, now

    def size_at(self, places: Collection[Place], mistake: Mistake) -> int:
        """Return the number of values that it changes; of several that are too many together, those it adds."""
        if len(places) == 1:
            (place,) = places
            return _size(_at(self.before, place), _at(self.now, place))
        if mistake.is_of_one:
            return sum(_at(self.before, place) is _ABSENT is not _at(self.now, place) for place in places)
        return sum(_at(self.before, place) != _at(self.now, place) for place in places)

    def has(self, places: Iterable[Place]) -> bool:
        """Return whether it has any of the values now."""
        return any(_at(self.now, place) is not _ABSENT for place in places)

    def dropped(self) -> Iterator[Place]:
        """Yield the places of the values that it had, and has no more."""
        return _dropped(self.before.values if self.before else {}, self.now.values if self.now else {}, ())


class _NotTaken(NamedTuple):
    """The reason for which a file is not taken.

    Attributes:
        reason: The reason.
        kind: The same in a few words, which name no key.
    """

    reason: str
    kind: str


class _Search:
    """The search for the changed files that are good together.

    Args:
        now: The folder as it is.
        in_force: The texts in force.
        load: Loads a folder.

    Attributes:
        problems: The mistakes, a line each.
        texts: The texts of the files of the last look.
    """

    def __init__(self, now: Folder, in_force: Mapping[Path, str], load: Callable[[Folder], Loaded]) -> None:
        self.problems: list[str] = []
        self.texts = in_force
        self._now, self._load = now, load
        self._unchanged = {
            each: file for each, file in now.files.items() if each in in_force and file.text == in_force[each]
        }
        changed = sorted({*now.files, *in_force} - self._unchanged.keys())
        self._changes = {
            each: _Change(File(each, in_force[each]) if each in in_force else None, now.files.get(each))
            for each in changed
        }
        self._by_name = {str(each): each for each in changed}
        self._not_taken: dict[Path, _NotTaken] = {}
        self._names = _Names()
        self._looks = 1

    def run(self, error: ConfigError) -> Loaded | None:
        """Return the folder with the files that are good together; None if it has mistakes without any, too.

        Args:
            error: The mistakes of the folder as it is.
        """
        while True:
            self.problems += [problem for problem in error.problems if problem not in self.problems]
            at_fault = self._at_fault(error.mistakes) or self._by_halves(error.mistakes)
            if not at_fault:
                return None
            self._leave(at_fault)
            self._leave_droppers()
            if self._looks > _MOST_LOOKS:
                self._leave(dict.fromkeys(self._open(), _TOO_MANY))
            try:
                return self._look(self._not_taken)
            except ConfigError as further:
                error = further

    def part(self, config: Config) -> UsablePart:
        """Return what is taken."""
        kept = {str(each): why.kind for each, why in sorted(self._not_taken.items())}
        return UsablePart(config, tuple(map(str, self._open())), kept)

    def lines(self) -> list[str]:
        """Return a line for each file that is not taken."""
        return [
            f"{each}: {self._stays(self._changes[each])}: {why.reason}" for each, why in sorted(self._not_taken.items())
        ]

    @staticmethod
    def _stays(change: _Change) -> str:
        if change.before is None:
            return "left out, as there is no content of before"
        return "the content of before holds" if change.now else "is gone, and the content of before holds"

    def _open(self) -> list[Path]:
        return [each for each in self._changes if each not in self._not_taken]

    def _folder(self, without: Container[Path]) -> Folder:
        """Return the folder with the content of before of some files."""
        files = dict(self._unchanged)
        for each, change in self._changes.items():
            file = change.before if each in without else change.now
            if file is not None:
                files[each] = file
        return Folder(self._now.path, dict(sorted(files.items())))

    def _look(self, without: Container[Path]) -> Loaded:
        self._looks += 1
        folder = self._folder(without)
        self.texts = _texts(folder)
        return self._load(folder)

    def let_go(self) -> None:
        """Empty the tables of values, in pieces."""
        for change in self._changes.values():
            for file in (change.before, change.now):
                if file is not None:
                    file.let_go()

    def _leave(self, files: Mapping[Path, _NotTaken]) -> None:
        self._not_taken |= files
        for each in files:
            self._names.add(each, self._changes[each])

    def _at_fault(self, mistakes: Iterable[Mistake]) -> dict[Path, _NotTaken]:
        """Return the files that alone can have a mistake; if there are none, those of mistakes of several."""
        surely, perhaps = dict[Path, _NotTaken](), dict[Path, _NotTaken]()

        def why(file: Path, mistake: Mistake) -> _NotTaken:
            size = self._changes[file].size_at
            is_own = str(file) in mistake.files or any(size(places, mistake) for places in mistake.places[:1])
            return _NotTaken(mistake.name, _OWN if is_own else _NEEDED)

        for mistake in mistakes:
            groups = [group for group in self._candidates(mistake) if group]
            files = {each for group in groups for each in group}
            if len(files) == 1 or len(mistake.files) > len(files):
                surely |= {each: why(each, mistake) for each in files if each not in surely}
            elif files:
                group = groups[0]
                chosen = [max(group, key=lambda each: group[each])] if mistake.is_of_one else group
                perhaps |= {each: why(each, mistake) for each in chosen if each not in perhaps}
        return surely or perhaps

    def _candidates(self, mistake: Mistake) -> Iterator[dict[Path, int]]:
        """Yield the files that a mistake may be of, with the number of their values in it; those at fault first."""
        taken = self._open()
        yield {each: 1 for each in taken if str(each) in mistake.files}
        for places in mistake.places:
            sizes = {each: self._changes[each].size_at(places, mistake) for each in taken}
            changed = {each: size for each, size in sizes.items() if size}
            having = {each: size for each, size in changed.items() if self._changes[each].has(places)}
            yield having if mistake.is_of_one and having else changed  # not those that dropped the value

    def _by_halves(self, mistakes: Iterable[Mistake]) -> dict[Path, _NotTaken]:
        """Return the first file with which a mistake occurs that no file is known for; none if it always does."""
        taken = self._open()
        for mistake in mistakes:
            low, high = 0, len(taken)
            if self._occurs(mistake, taken):
                return {}
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if self._occurs(mistake, taken[middle:]) else (middle, high)
            return {taken[high - 1]: _NotTaken(mistake.name, _OWN)}
        return {}

    def _occurs(self, mistake: Mistake, without: Iterable[Path]) -> bool:
        try:
            loaded = self._look({*self._not_taken, *without})
        except ConfigError as error:
            return mistake.name in {each.name for each in error.mistakes}
        let_go(vars(loaded.config.limits))
        return False

    def _leave_droppers(self) -> None:
        """Leave files that drop limits which a file that is not taken may have been given."""
        while self._looks <= _MOST_LOOKS:
            self._looks += 1
            values = self._folder(self._not_taken).values
            droppers = {each: _drops(*moved) for each in self._open() if (moved := self._moved(each, values))}
            if not droppers:
                return
            self._leave(droppers)

    def _moved(self, file: Path, values: Mapping[str, Any]) -> tuple[Place, Path] | None:
        """Return a value that a file drops and no file has, and the file that may have it and is not taken."""
        for place in self._changes[file].dropped():
            if not has(values, place):
                holder = self._names.holder(place)
                if holder is not None:
                    return place, holder
        return None


_OWN: Final = "it has a mistake"
_NEEDED: Final = "other files need its content of before"


def _drops(place: Place, holder: Path) -> _NotTaken:
    reason = f"it has {'.'.join(place)} no more, which {holder} may have now, and that file is not taken"
    return _NotTaken(reason, "it drops limits that another file may have, which is not taken")


_TOO_MANY: Final = _NotTaken(
    f"mistakes are left after {_MOST_LOOKS} looks at the folder", "there are too many mistakes"
)


class _Names:
    """The names of what files limit that are not taken, in their content of before and as it is.

    A file that is no YAML has all names whose words are in its text, and one that cannot be read has all.
    """

    def __init__(self) -> None:
        self._by_place: dict[Place, Path] = {}
        self._patterns: dict[Place, PatternValues[Path]] = {}
        self._by_word: dict[str, Path] = {}
        self._unread: Path | None = None

    def add(self, path: Path, change: _Change) -> None:
        """Add the names in a file."""
        before = set(_heads(change.before))
        for place in {*before, *_heads(change.now)}:
            self._by_place.setdefault(_kept(place), path)
            if place not in before and EACH in place[-1]:
                with suppress(ValueError):
                    self._patterns.setdefault(place[:-1], PatternValues()).put(place[-1], path)
        if change.now is None:
            return
        if change.now.text is None:
            self._unread = path
        elif not change.now.is_whole:
            self._by_word |= dict.fromkeys(_words(change.now.text), path)

    def holder(self, place: Place) -> Path | None:
        """Return a file that may have what is limited at a place; None if no file may."""
        head = place[:_HEAD]
        words = [self._by_word.get(word) for part in head for word in _words(part)]
        patterns = self._patterns.get(head[:-1])
        by_pattern = patterns and (
            patterns.by_name.get(EACH) or next((file for _, file in patterns.matches(head[-1])), None)
        )
        return self._by_place.get(_kept(head)) or by_pattern or (words[0] if words and all(words) else self._unread)


def _kept(place: Place) -> Place:
    """Return the keys with the name as Sluice keeps it: topics and networks may be written in several ways."""
    if len(place) < _HEAD or place[0] != "limits":
        return place
    return (*place[:-1], kept_name(place[1], place[-1]))


def _words(text: str) -> list[str]:
    return [word.rstrip(":") for word in _WORD.findall(text)]


def _heads(file: File | None) -> Iterator[Place]:
    """Yield the first keys of all values, and those of values with a mistake."""
    if file is not None:
        yield from _heads_in(file.values, ())
        yield from (each.key[:_HEAD] for each in file.wrong if each.key)


def _heads_in(values: Mapping[str, Any], above: Place) -> Iterator[Place]:
    for key, value in values.items():
        place = (*above, key)
        if isinstance(value, dict) and len(place) < _HEAD:
            yield from _heads_in(value, place)
        else:
            yield place


def _dropped(before: Mapping[str, Any], now: Mapping[str, Any], above: Place) -> Iterator[Place]:
    for key, value in before.items():
        left = now.get(key, _ABSENT)
        if isinstance(value, dict) and value:
            yield from _dropped(value, left if isinstance(left, dict) else {}, (*above, key))
        elif left is _ABSENT:
            yield (*above, key)


def _at(file: File | None, place: Place) -> Any:
    """Return the value at a place, or that around it, if it is no section."""
    value: Any = file.values if file else {}
    for part in place:
        if not isinstance(value, dict):
            break
        value = value.get(part, _ABSENT)
    return value


def _size(value: Any, other: Any) -> int:
    """Return the number of values that differ."""
    if isinstance(value, dict) and isinstance(other, dict):
        return sum(value.get(key, _ABSENT) != other.get(key, _ABSENT) for key in {*value, *other})
    if value == other:
        return 0
    return max([1, *(len(each) for each in (value, other) if isinstance(each, dict))])

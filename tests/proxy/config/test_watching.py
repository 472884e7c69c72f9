import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config import watching
from proxy.config.watching import changes_of, fingerprints

_PATIENCE_S = 20


async def noticed(file: Path, change: Callable[[], object]) -> None:
    """Returns when the change is noticed."""

    async def first() -> None:
        async for _ in changes_of(fingerprints([file])):
            return

    noticing = asyncio.get_running_loop().create_task(first())
    await asyncio.sleep(0)  # the watch stands after its first step
    change()
    async with asyncio.timeout(_PATIENCE_S):
        await noticing


def rewrite(file: Path) -> Callable[[], object]:
    return lambda: file.write_text(file.read_text() + "#")


def replace(file: Path) -> Callable[[], object]:
    def change() -> None:
        new = file.with_suffix(".new")
        new.write_text(file.read_text() + "#")
        new.rename(file)

    return change


def swap(file: Path) -> Callable[[], object]:
    """As Kubernetes changes a mounted ConfigMap: `file` is a link into `..data`, itself a link that is replaced."""
    mount, versions = file.parent, iter(range(1000))

    def change() -> None:
        folder = mount / f"..version{next(versions)}"
        folder.mkdir()
        (folder / file.name).write_text("new")
        (mount / "..new").symlink_to(folder.name)
        (mount / "..new").rename(mount / "..data")

    return change


@pytest.fixture
def no_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the watch is left to tell."""
    monkeypatch.setattr(watching, "_LOOK_MS", 3_600_000)


@pytest.mark.usefixtures("no_looking")
@pytest.mark.parametrize("change", [rewrite, replace])
async def test_a_file_that_is_written_anew_is_noticed(
    tmp_path: Path, change: Callable[[Path], Callable[[], object]]
) -> None:
    file = tmp_path / "sluice.yaml"
    file.touch()
    await noticed(file, change(file))


@pytest.mark.usefixtures("no_looking")
async def test_a_swapped_symlink_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    change = swap(file)
    change()
    file.symlink_to(Path("..data") / file.name)
    await noticed(file, change)


async def test_what_changed_before_the_watch_stands_and_what_it_does_not_see_is_noticed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LOOK_MS", 10)
    file, elsewhere = tmp_path / "watched" / "sluice.yaml", tmp_path / "sluice.yaml"
    file.parent.mkdir()
    elsewhere.touch()
    file.symlink_to(elsewhere)
    seen = fingerprints([file])
    elsewhere.write_text("#")
    changes = changes_of(seen)
    async with asyncio.timeout(_PATIENCE_S):
        await anext(changes)
        elsewhere.write_text("##")
        await anext(changes)
    await changes.aclose()


def test_a_file_that_is_not_there_differs_from_one_that_is(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    before = fingerprints([file])
    file.touch()
    assert before == {file: None}
    there = fingerprints([file])
    assert there[file] is not None
    assert fingerprints([file]) == there
    os.utime(file, ns=(1, 1))
    assert fingerprints([file]) != there

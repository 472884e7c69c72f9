import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config.watching import changes_of, fingerprint

_PATIENCE_S = 20


async def noticed(file: Path, change: Callable[[], object]) -> None:
    """Returns when the change is noticed. It is made again until the watch stands, which nobody tells."""

    async def first() -> None:
        async for _ in changes_of([file]):
            return

    noticing = asyncio.get_running_loop().create_task(first())
    async with asyncio.timeout(_PATIENCE_S):
        while not noticing.done():
            change()
            await asyncio.wait([noticing], timeout=0.2)
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


@pytest.mark.parametrize("change", [rewrite, replace])
async def test_a_file_that_is_written_anew_is_noticed(
    tmp_path: Path, change: Callable[[Path], Callable[[], object]]
) -> None:
    file = tmp_path / "sluice.yaml"
    file.touch()
    await noticed(file, change(file))


async def test_a_swapped_symlink_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    change = swap(file)
    change()
    file.symlink_to(Path("..data") / file.name)
    await noticed(file, change)


def test_a_file_that_is_not_there_differs_from_one_that_is(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    before = fingerprint([file])
    file.touch()
    assert before == (None,)
    assert fingerprint([file]) != before
    assert fingerprint([file])[0] is not None
    os.utime(file, ns=(1, 1))
    assert fingerprint([file]) == fingerprint([file])

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from proxy import reload as reloading
from proxy.file_calls import FileCalls
from proxy.reload import Fingerprint, changes_of, fingerprints
from tests.waiting import PATIENCE_S


async def noticed(file: Path, change: Callable[[], object]) -> None:
    """Returns when the change is noticed."""

    async def first() -> None:
        async for _ in changes_of(fingerprints([file])):
            return

    noticing = asyncio.get_running_loop().create_task(first())
    await asyncio.sleep(0)  # threads begin to watch, and look after that
    change()
    async with asyncio.timeout(PATIENCE_S):
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
    monkeypatch.setattr("proxy.reload._LOOK_S", 3600)


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


@pytest.mark.usefixtures("no_looking")
async def test_the_folder_that_a_link_leads_to_is_watched_too(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "watched" / "sluice.yaml", tmp_path / "sluice.yaml"
    file.parent.mkdir()
    elsewhere.touch()
    file.symlink_to(elsewhere)
    await noticed(file, replace(elsewhere))


@pytest.mark.usefixtures("no_looking")
async def test_a_folder_that_is_made_anew_is_watched_again(tmp_path: Path) -> None:
    file, other = tmp_path / "removed" / "sluice.yaml", tmp_path / "other" / "sluice.yaml"
    for path in (file, other):
        path.parent.mkdir()
        path.touch()
    changes = changes_of(fingerprints([file, other]))
    async with asyncio.timeout(PATIENCE_S):
        other.write_text("")
        await anext(changes)  # the watch stands
        next_change = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        file.unlink()
        file.parent.rmdir()
        await next_change
        file.parent.mkdir()
        next_change = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        other.write_text("#")
        await next_change
        next_change = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        file.write_text("#")
        await next_change
    await changes.aclose()


async def test_watch_notices_changes_that_it_does_not_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.reload._LOOK_S", 0.01)
    file, way, elsewhere = (tmp_path / name / "sluice.yaml" for name in ("watched", "unwatched", "meant"))
    for path in (file, way, elsewhere):
        path.parent.mkdir()
    elsewhere.touch()
    way.symlink_to(elsewhere)
    file.symlink_to(way)
    seen = fingerprints([file])
    elsewhere.write_text("#")
    changes = changes_of(seen)
    async with asyncio.timeout(PATIENCE_S):
        await anext(changes)
        way.unlink()
        await anext(changes)
    await changes.aclose()


@pytest.mark.usefixtures("no_looking")
async def test_a_folder_in_which_there_is_no_end_of_changes_keeps_none_waiting(tmp_path: Path) -> None:
    file, noise = tmp_path / "sluice.yaml", tmp_path / "noise"

    async def disturb() -> None:
        while True:
            noise.write_text("#")
            await asyncio.sleep(0.01)

    disturbing = asyncio.get_running_loop().create_task(disturb())
    await noticed(file, file.touch)
    disturbing.cancel()


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


@pytest.mark.parametrize("name", ["Inotify", "Inotify.add_watch"])
async def test_files_are_looked_at_where_no_watch_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(f"proxy.reload.{name}", refuse)
    monkeypatch.setattr("proxy.reload._LOOK_S", 0)
    file = tmp_path / "sluice.yaml"
    file.touch()
    changes = changes_of(fingerprints([file]))
    with structlog.testing.capture_logs() as logs:
        async with asyncio.timeout(PATIENCE_S):
            for text in ("#", "##"):
                file.write_text(text)
                await anext(changes)
    await changes.aclose()
    (line,) = logs
    assert line["event"] == "changes of the configuration's files are noticed late: they cannot be watched"
    assert line["error"].endswith("Too many open files")


async def test_thread_that_cannot_be_started_ends_no_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("proxy.reload._LOOK_S", 0)
    file = tmp_path / "sluice.yaml"
    file.touch()
    changes = changes_of(fingerprints([file]))
    async with asyncio.timeout(PATIENCE_S):
        with monkeypatch.context() as without:
            without.setattr(threading.Thread, "start", start)
            await anext(changes)
        await anext(changes)  # it can be looked at again
    await changes.aclose()


def at_work() -> int:
    return [thread.name for thread in threading.enumerate()].count("files")


@pytest.mark.usefixtures("no_looking")
async def test_file_that_hangs_keeps_no_change_unnoticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, hung, hangs, answers = tmp_path / "a.yaml", tmp_path / "hung.crt", threading.Event(), threading.Event()
    for each in (file, hung):
        each.touch()
    seen = fingerprints([file, hung])
    look, looked_by = reloading._of, set[str]()

    def looking(path: Path) -> Fingerprint | None:
        looked_by.add(threading.current_thread().name)
        if path == hung:
            hangs.set()
            assert answers.wait(PATIENCE_S)
        return look(path)

    async def until_it_alone_is_left(_calls: FileCalls, _seconds: float) -> None:
        while not hangs.is_set() or at_work() > 1:  # noqa: ASYNC110 - threads make it true
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # the results of the others come

    monkeypatch.setattr("proxy.reload._of", looking)
    monkeypatch.setattr(FileCalls, "patience", until_it_alone_is_left)
    changes = changes_of(seen)
    async with asyncio.timeout(PATIENCE_S):
        await anext(changes)  # that it hangs is a change, which the reload reports
        file.write_text("#")
        await anext(changes)
        answers.set()
        while at_work():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        monkeypatch.setattr(FileCalls, "patience", lambda _, _seconds: asyncio.Event().wait())
        (tmp_path / "b.yaml").touch()
        await anext(changes)  # that it answers is one as well
    await changes.aclose()
    assert looked_by == {"files"}, "never the loop"

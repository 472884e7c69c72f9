import sys

import pytest

from loadgen.bench.errors import BenchError
from loadgen.bench.peers import plan
from loadgen.bench.peers.plan import Command, Plan, running


def test_who_does_not_listen_is_told_with_what_it_said(monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "_START_S", 1.0)
    mute = Plan(
        "mute",
        lambda _place: Command([sys.executable, "-c", "import signal; print('cannot', flush=True); signal.pause()"]),
    )
    with pytest.raises(BenchError, match="mute does not listen"), running(mute, tmp_path, 1):
        pass


def test_who_ends_is_told_at_once_with_what_it_said(monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "_START_S", 10.0)
    lame = Plan("lame", lambda _place: Command([sys.executable, "-c", "print('no such key'); raise SystemExit(3)"]))
    with pytest.raises(BenchError, match=r"^lame ended with code 3: no such key$"), running(lame, tmp_path, 1):
        pass


def test_each_has_a_folder_of_its_own(tmp_path):
    folders = []

    def command(place):
        folders.append(place.folder)
        raise BenchError("seen enough")

    for _ in range(2):
        with pytest.raises(BenchError), running(Plan("some peer", command), tmp_path, 1):
            pass
    assert len(set(folders)) == 2

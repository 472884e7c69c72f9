import os

from compliance.log_folder import (
    FOLDER,
    HIDDEN,
    LINK,
    MOST_FOLDERS,
    ODD,
    OTHER_COMPRESSION,
    SPECIAL,
    is_hidden,
    is_odd,
    look_into,
)


def test_what_spark_passes_over_is_told_with_the_remedy(tmp_path):
    for name in (
        "b.jsonl.zst",
        "a.jsonl",
        "_p-1.jsonl",
        ".q-1.jsonl",
        "c.jsonl.gz",
        "notes.txt",
        ".p-b-000001.jsonl.zst.open",
    ):
        (tmp_path / name).touch()
    for name in ("old", ".snapshot", "empty", "d.jsonl"):
        (tmp_path / name).mkdir()
    for name in ("old", ".snapshot", "d.jsonl"):
        (tmp_path / name / "x.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to("nowhere")
    (tmp_path / "good-link.jsonl").symlink_to("a.jsonl")
    folder = look_into(tmp_path)
    assert [file.name for file in folder.closed] == ["a.jsonl", "b.jsonl.zst"]
    assert folder.passed_over == {
        HIDDEN: [".q-1.jsonl", "_p-1.jsonl"],
        OTHER_COMPRESSION: ["c.jsonl.gz"],
        FOLDER: ["d.jsonl", "old"],
        LINK: ["good-link.jsonl", "link.jsonl"],
    }
    assert folder.unread == 5, "all but subfolders may hold lines of this log"
    assert folder.words() == (
        "names that begin with . or _: 2 (.q-1.jsonl, _p-1.jsonl): rename them; "
        "symbolic links: 2 (good-link.jsonl, link.jsonl): put the files themselves there; "
        "packed files: 1 (c.jsonl.gz): unpack them; "
        "subfolders with log files: 2 (d.jsonl, old): read each with an --out of its own"
    )


def test_where_all_is_read_there_is_nothing_to_say(tmp_path):
    (tmp_path / "a.jsonl").touch()
    assert look_into(tmp_path).words() == ""


def test_of_many_the_first_are_named_and_all_are_counted(tmp_path):
    for number in range(1234):
        (tmp_path / f"_{number:04}.jsonl").touch()
    words = look_into(tmp_path).words()
    assert words == "names that begin with . or _: 1,234 (_0000.jsonl, _0001.jsonl, _0002.jsonl, …): rename them"


def test_only_so_many_subfolders_are_looked_into(tmp_path):
    for number in range(MOST_FOLDERS + 5):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "a.jsonl").touch()
    assert len(look_into(tmp_path).passed_over[FOLDER]) == MOST_FOLDERS


def test_names_are_hidden_as_spark_has_it():
    assert [is_hidden(name) for name in ("_a", ".a", "._a", "a_", "_a=1", "a.b")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_pipes_are_never_opened_and_odd_names_stop_nothing(tmp_path):
    odd = ("a:b.jsonl", "a{b}.jsonl", "a[b].jsonl", "a*b.jsonl", "a?b.jsonl", "a\\b.jsonl", "a\nb.jsonl")
    for name in (*odd, "fine.jsonl", "größe 1.jsonl"):
        (tmp_path / name).touch()
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff.jsonl", os.O_CREAT))
    os.mkfifo(tmp_path / "pipe.jsonl")
    folder = look_into(tmp_path)
    assert [file.name for file in folder.closed] == ["fine.jsonl", "größe 1.jsonl"]
    assert {kind: len(names) for kind, names in folder.passed_over.items()} == {ODD: len(odd) + 1, SPECIAL: 1}
    assert folder.unread == len(odd) + 1
    assert "\n" not in folder.words()
    assert folder.words().startswith(
        "names that Hadoop cannot take: 8 (a\\nb.jsonl, a*b.jsonl, a:b.jsonl, …): rename them"
    )


def test_odd_is_what_hadoop_takes_for_a_pattern_or_not_at_all():
    assert [is_odd(name) for name in ("a-b_c 1%20ä.jsonl", "a:b", "a\tb", "a{b")] == [False, True, True, True]

from compliance.log_folder import FOLDER, HIDDEN, MOST_FOLDERS, NOTHING, PACKED, is_hidden, look_into


def test_what_spark_passes_over_is_told_with_the_remedy(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "_p-1.jsonl", ".q-1.jsonl", "c.jsonl.gz", "notes.txt", ".p-b-000001.jsonl.open"):
        (tmp_path / name).touch()
    for name in ("old", ".snapshot", "empty", "d.jsonl"):
        (tmp_path / name).mkdir()
    for name in ("old", ".snapshot", "d.jsonl"):
        (tmp_path / name / "x.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to("nowhere")
    (tmp_path / "good-link.jsonl").symlink_to("a.jsonl")
    found = look_into(tmp_path)
    assert [file.name for file in found.closed] == ["a.jsonl", "b.jsonl", "good-link.jsonl"]
    assert found.passed_over == {
        HIDDEN: [".q-1.jsonl", "_p-1.jsonl"],
        PACKED: ["c.jsonl.gz"],
        FOLDER: ["d.jsonl", "old"],
        NOTHING: ["link.jsonl"],
    }
    assert found.words() == (
        "names that begin with . or _: 2 (.q-1.jsonl, _p-1.jsonl): rename them; "
        "packed files: 1 (c.jsonl.gz): unpack them; "
        "subfolders with *.jsonl: 2 (d.jsonl, old): read each with an --out of its own; "
        "links to nothing: 1 (link.jsonl): mend or delete them"
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

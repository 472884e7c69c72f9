import pytest

from compliance.stream.storage import Storage

pytestmark = pytest.mark.spark


@pytest.fixture
def storage(spark):
    return Storage(spark)


def test_a_file_is_read_as_it_was_written_and_overwritten(storage, tmp_path):
    path = f"{tmp_path}/made/here/a.json"
    for content in (b"one \xff\n", b"two"):
        storage.write(path, content)
        assert storage.read(path) == content
    assert [name for name in storage.names(f"{tmp_path}/made/here") if name.startswith("_")] == []


def test_what_is_not_there_has_no_names_and_may_be_removed(storage, tmp_path):
    assert storage.names(f"{tmp_path}/nowhere") == []
    assert not storage.exists(f"{tmp_path}/nowhere")
    storage.remove(f"{tmp_path}/nowhere")


def test_a_folder_is_moved_over_another(storage, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a").touch()
    (tmp_path / "deep" / "old").mkdir(parents=True)
    (tmp_path / "deep" / "old" / "b").touch()
    storage.move(f"{tmp_path}/new", f"{tmp_path}/deep/old")
    assert storage.names(f"{tmp_path}/deep/old") == ["a"]
    assert not (tmp_path / "new").exists()


def test_of_a_full_disk_the_file_is_named(storage):
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        storage.put("/dev/full", b"x")

from proxy.observe.log_files import recover
from proxy.observe.log_writer import RunLock, alive_name

BOOT, EARLIER = "20261121T112900-0a1b2c3d", "20261121T102900-0a1b2c3d"


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_the_sign_is_there_until_the_orderly_end(tmp_path):
    alive = RunLock(tmp_path, "east", BOOT)
    assert names(tmp_path) == [alive_name("east", BOOT)]
    assert recover(tmp_path, "east") == []
    alive.end()
    assert names(tmp_path) == []


def test_a_sign_that_was_deleted_is_made_again(tmp_path):
    alive = RunLock(tmp_path, "east", BOOT)
    (tmp_path / alive_name("east", BOOT)).unlink()
    alive.be_there()
    alive.be_there()
    assert names(tmp_path) == [alive_name("east", BOOT)]
    assert recover(tmp_path, "east") == []
    alive.end()


def test_the_sign_of_a_killed_run_stays_until_the_log_says_what_it_lost(tmp_path):
    (tmp_path / alive_name("east", EARLIER)).touch()
    alive = RunLock(tmp_path, "east", BOOT)
    assert [loss.of_boot for loss in recover(tmp_path, "east")] == [EARLIER]
    alive.declared(BOOT)
    assert [loss.of_boot for loss in recover(tmp_path, "east")] == [EARLIER]
    alive.declared(EARLIER)
    assert names(tmp_path) == [alive_name("east", BOOT)]
    alive.end()

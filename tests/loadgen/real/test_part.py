"""Only what needs no Java; `tests/real` runs the parts themselves."""

from pathlib import Path

import pytest

from loadgen.real.errors import ProcessFailed
from loadgen.real.part import Part, Program, run_once
from tests.loadgen.real.conftest import MAVEN_THAT_WORKS, Tool, java_that_says

PROGRAM = Program("a.Main", ("--one",), ("-Xmx64m",))


@pytest.fixture
def java(tool: Tool, tools: Path) -> Tool:
    """Put a java in place: what it does when it is not asked for its version."""
    (tools / "sleep").symlink_to("/bin/sleep")
    tool("mvn", MAVEN_THAT_WORKS)
    return lambda _, script: tool("java", f"case $1 in -version) {java_that_says('17')}; exit;; esac\n{script}")


def test_a_part_starts_again_after_it_ended_or_was_killed(java: Tool, tmp_path: Path) -> None:
    java("java", "echo up >> $RUNS; exec sleep 60")
    part = Part(tmp_path / "zookeeper", PROGRAM, (tmp_path / "runs").exists)
    assert not part.is_running
    for end in (part.kill, part.terminate, part.kill):
        (tmp_path / "runs").unlink(missing_ok=True)
        part.restart()
        assert part.is_running
        end()
        assert not part.is_running


def test_a_part_that_ends_at_once_is_named_with_its_last_lines(java: Tool, tmp_path: Path) -> None:
    java("java", "echo 'no such address'; exit 4")
    part = Part(tmp_path / "bookie", PROGRAM, lambda: False)
    with pytest.raises(ProcessFailed, match="bookie is not launched"):
        part.wait()
    part.launch()
    with pytest.raises(ProcessFailed, match="bookie ended with code 4\nno such address"):
        part.wait()


def test_the_java_gets_its_memory_its_log_and_the_arguments(java: Tool, tmp_path: Path) -> None:
    java("java", 'echo "$@"')
    run_once(tmp_path / "once", PROGRAM)
    said = (tmp_path / "once" / "log").read_text()
    assert f"-Xmx64m -XX:+UseSerialGC -Dlog4j.configurationFile={tmp_path}/once/log4j2.xml" in said
    assert said.endswith("a.Main --one\n")
    assert (tmp_path / "once" / "log4j2.xml").exists()


def test_what_runs_once_must_end_well_and_in_time(java: Tool, tmp_path: Path) -> None:
    java("java", "echo 'cluster exists'; exit 5")
    with pytest.raises(ProcessFailed, match="setup ended with code 5\ncluster exists"):
        run_once(tmp_path / "setup", PROGRAM)
    java("java", "exec sleep 60")
    with pytest.raises(ProcessFailed, match="setup did not end within 0 s"):
        run_once(tmp_path / "setup", PROGRAM, timeout_s=0)

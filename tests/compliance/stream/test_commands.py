import subprocess
import sys

import pytest

from compliance.commands import _absolute


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--spark", "x"], "sluice compliance run: --spark x: must be KEY=VALUE\n"),
        (["--source", "tape"], "sluice compliance run: --source tape: must be one of files, kafka, pulsar\n"),
    ],
)
def test_a_wrong_option_is_one_line_and_no_traceback(tmp_path, words, message):
    command = [sys.executable, "-m", "sluice", "compliance", "run", "--out", str(tmp_path / "out"), *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", message)


def test_folders_are_made_absolute_and_uris_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _absolute("log/a") == f"{tmp_path}/log/a"
    assert _absolute("s3a://bucket/out") == "s3a://bucket/out"
    assert _absolute("file:/log/a") == "file:/log/a"
    assert _absolute("") == ""


def test_without_spark_it_says_what_to_install(tmp_path):
    """A package of that name that cannot be imported stands before the real one."""
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('no', name='pyspark')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import sluice.cli; sluice.cli.main()"
    arguments = ["compliance", "run", "--out", str(tmp_path)]
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "pyspark is not installed: run `pip install 'pulsar-sluice[report]'`" in ended.stderr

"""What `make` leaves to tools/, with programs that only write down how they are called."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.docs.headings import section

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then
    mkdir -p .venv/bin
    for name in python pip ruff mypy lint-imports pytest sluice; do
        printf '#!/bin/sh\\necho "%s $*" >> "$CALLS"\\ntest "%s" != "$FAILS"\\n' $name $name > .venv/bin/$name
        chmod +x .venv/bin/$name
    done
fi
"""


@pytest.fixture
def clone(tmp_path):
    return tmp_path / "clone"


@pytest.fixture
def make(tmp_path, clone):
    calls, python = tmp_path / "calls", tmp_path / "python"
    for name in ("tools", "requirements"):
        shutil.copytree(ROOT / name, clone / name)
    for name in ("Makefile", "pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / name, clone)
    (clone / "protocol").mkdir()
    (clone / "protocol/walk.py").touch()
    python.write_text(PYTHON)
    python.chmod(0o755)

    def run(*words, fails="", code=0):
        calls.write_text("")
        env = {**os.environ, "CALLS": str(calls), "FAILS": fails}
        command = ["make", *words, f"PYTHON={python}"]
        done = subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == bool(code), done.stdout + done.stderr
        return [line.split(" ")[0] for line in calls.read_text().splitlines() if not line.startswith("python ")]

    return run


def test_environment_is_made_once_and_built_on_source_changes(make, clone):
    assert make("env") == ["sluice"]
    assert make("env") == []
    os.utime(clone / "protocol/walk.py", (2**32, 2**32))
    assert make("env") == ["sluice"]


@pytest.mark.parametrize(("target", "runs"), [("test", 1), ("proofs", 2)])
def test_static_checks_come_before_the_last_tests(make, target, runs):
    *_, last = calls = make(target)
    assert sorted(calls) == ["lint-imports", "mypy", *["pytest"] * runs, "ruff", "ruff", "sluice"]
    assert last == "pytest"


@pytest.mark.parametrize("fails", ["mypy", "ruff", "lint-imports"])
def test_a_check_that_fails_fails_make_test(make, fails):
    assert "pytest" not in make("test", fails=fails, code=2)


def test_a_build_that_fails_fails_make_test(make):
    make("test", fails="sluice", code=2)


def test_a_lock_that_changes_is_installed(make, clone):
    make("env")
    os.utime(clone / "requirements/all.lock", (2**32, 2**32))
    assert make("env") == ["sluice"]


def test_the_makefile_is_read_in_a_minute():
    assert len((ROOT / "Makefile").read_text().splitlines()) <= 80


def programs(folder, *names):
    """A PATH with the programs of this machine that these tools need, and these, which only write down their calls."""
    folder.mkdir()
    for name in ("bash", "dirname", "env", "sed"):
        (folder / name).symlink_to(shutil.which(name))
    for name in names:
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "$CALLS"\n')
        (folder / name).chmod(0o755)
    return str(folder)


def run_tool(tmp_path, path, *words):
    """Run a tool of a clone without changes; returns exit code, its errors, and the calls of programs."""
    clone, calls = tmp_path / "clone", tmp_path / "calls"
    shutil.copytree(ROOT / "tools", clone / "tools")
    shutil.copy(ROOT / "pyproject.toml", clone)
    calls.touch()
    env = {"PATH": path, "CALLS": str(calls)}
    done = subprocess.run([clone / words[0], *words[1:]], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr, calls.read_text().splitlines()


def with_tag(path, tag, changed=""):
    """That PATH with a Git whose commit has a tag, and perhaps a file that is not as in the commit."""
    git = Path(path) / "git"
    git.write_text(f'#!/bin/sh\ncase $1 in tag) echo "{tag}";; status) echo "{changed}";; esac\n')
    git.chmod(0o755)
    return path


@pytest.mark.parametrize("engine", ["docker", "buildah"])
def test_images_of_a_release_have_its_tag_and_their_own_base(tmp_path, engine):
    path = with_tag(programs(tmp_path / "bin", engine), "v1.2.3")
    code, errors, calls = run_tool(tmp_path, path, "tools/images", "--release")
    assert code == 0, errors
    assert [call.rpartition("--tag ")[2].split()[0] for call in calls] == ["sluice:1.2.3", "sluice-compliance:1.2.3"]
    assert all(call.startswith(f"{engine} build --pull --build-arg VERSION=1.2.3 --tag ") for call in calls)


@pytest.mark.parametrize("tag", ["", "vnext", "v1.2.3-rc.1"])
@pytest.mark.parametrize(
    "words", [["tools/images"], ["tools/release", "--without-python", "3.12", "--without-python", "3.13"]]
)
def test_release_of_a_commit_without_a_version_is_refused(tmp_path, tag, words):
    path = with_tag(programs(tmp_path / "bin", "docker", "python3.11"), tag)
    code, errors, calls = run_tool(tmp_path, path, words[0], *(words[1:] or ["--release"]))
    assert code == 1
    assert errors == f"{words[0]}: this commit has {tag or 'no tag'}, and not the one of a version: tag it v1.2.3\n"
    assert [call for call in calls if call.startswith("docker")] == []


def test_images_of_a_release_have_no_file_that_is_not_committed(tmp_path):
    path = with_tag(programs(tmp_path / "bin", "docker"), "v1.2.3", "?? sluice/new.py")
    code, errors, calls = run_tool(tmp_path, path, "tools/images", "--release")
    assert (code, calls) == (1, [])
    assert errors == "tools/images: there are changes that are not committed: commit or stash them\n"


def test_images_have_the_version_that_they_are_given(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file in ("Dockerfile", "deploy/compliance.Dockerfile"):
        (command,) = re.findall(r"^RUN (sed -i .* pyproject.toml) && ", (ROOT / file).read_text(), re.MULTILINE)
        subprocess.run(["sh", "-c", command], cwd=tmp_path, env=os.environ | {"VERSION": "1.2.3"}, check=True)
        assert tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["version"] == "1.2.3"
        shutil.copy(ROOT / "pyproject.toml", tmp_path)


def test_images_say_their_one_base_which_has_a_digest():
    bases = set()
    for file in ("Dockerfile", "deploy/compliance.Dockerfile"):
        first, last = (ROOT / file).read_text().split("FROM ${PYTHON}\n")
        assert "ARG PYTHON\n" in last
        assert 'org.opencontainers.image.base.name="${PYTHON}"' in last
        bases |= set(re.findall(r"^ARG PYTHON=(.*)$", first, re.MULTILINE))
        assert set(re.findall(r"^FROM (\S+)", first, re.MULTILINE)) == {"${PYTHON}"}
    (base,) = bases
    assert re.fullmatch(r"python:3\.11\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", base)


def test_page_names_debian_packages_of_the_day_of_a_build():
    page = section(ROOT / "docs/kubernetes.md", "images")
    for file in ("Dockerfile", "deploy/compliance.Dockerfile"):
        (line,) = re.findall(r"apt-get install --yes --no-install-recommends ([^&\\\n]+)", (ROOT / file).read_text())
        assert line.split()
        assert [package for package in line.split() if f"`{package}`" not in page] == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            [],
            "no Python 3.12 3.13 on PATH: install it as python3.12 python3.13, or leave it out: --without-python 3.12 ",
        ),
        (["--without-python", "3.12"], "no Python 3.13 on PATH: install it as python3.13, or leave it out: --without-"),
        (["--without-python", "3.10"], "--without-python names 3.11, 3.12 or 3.13, and not '3.10'"),
        (["--without-python"], "--without-python names 3.11, 3.12 or 3.13, and not ''"),
        (["--without-tags"], "'--without-tags' is not known"),
        ([w for v in ("3.11", "3.12", "3.13") for w in ("--without-python", v)], "every Python is left out"),
    ],
)
def test_release_leaves_out_no_python_that_is_not_named(tmp_path, words, problem):
    code, errors, calls = run_tool(tmp_path, programs(tmp_path / "bin", "python3.11"), "tools/release", *words)
    assert code == 1
    assert errors.splitlines()[-1].startswith(f"tools/release: {problem}")
    assert {call.split()[0] for call in calls} <= {"python3.11"}


def test_release_refuses_headers_of_one_architecture(tmp_path):
    path = programs(tmp_path / "bin")
    python = tmp_path / "bin/python3.11"
    python.write_text('#!/bin/sh\ncase "$*" in *config_h*) exit 1 ;; esac\n')
    python.chmod(0o755)
    left_out = ("--without-python", "3.12", "--without-python", "3.13")
    code, errors, _ = run_tool(tmp_path, path, "tools/release", *left_out)
    assert code == 1
    assert errors.startswith("tools/release: python3.11 has no headers for another architecture")

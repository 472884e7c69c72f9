"""The wheel, in an environment that has nothing of ours but it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from hatch_build import missing_compiler

ROOT = Path(__file__).resolve().parents[1]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
PACKAGES = WHEEL["packages"]
DATA = {".css", ".html", ".j2", ".js", ".proto"}
BUILD = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
OPTIMIZED = 'opt_level = "3"'
HOT = re.compile(r'^    "/([^"]+)\.py",\n', re.MULTILINE)
"""A line of the list of what is compiled."""
COMPILED = ("protocol/walk", "protocol/scanner", "protocol/flow")
CONFIG = "broker: pulsar://127.0.0.1:6650\nlimits:\n  namespaces:\n    shop/orders:\n      publish: {messages: 500}\n"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of the sources: what is compiled stays where it is while it is built.

    The list of what is compiled is cut down to three modules, and the C compiler does not optimize: how machine code
    gets into a wheel is the same, and that all of the list can be compiled was seen when this environment was made.
    """
    copy = tmp_path_factory.mktemp("sources")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in BUILD:
        shutil.copy(ROOT / name, copy)
    project = (copy / "pyproject.toml").read_text()
    assert project.count(OPTIMIZED) == 1
    assert set(COMPILED) < set(HOT.findall(project))
    project = HOT.sub(lambda line: line[0] if line[1] in COMPILED else "", project)
    (copy / "pyproject.toml").write_text(project.replace(OPTIMIZED, 'opt_level = "0"'))
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(copy / "dist")]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    (made,) = (copy / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """With the wheel; what that depends on is this environment's, but not what this one has of ours."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def run(environment, *words):
    done = subprocess.run(
        [environment / "bin" / "sluice", *words], cwd=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_who_builds_it_in_an_environment_of_its_own_gets_all_that_mypyc_looks_for():
    """It checks the types of all that is imported, so that must be there: pip's, and the image's (its lock)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = WHEEL["hooks"]["custom"]
    assert hook["require-runtime-dependencies"]
    assert hook["dependencies"] == ["types-protobuf"]
    locked = {
        line.split("==")[0] for line in (ROOT / "requirements/build.lock").read_text().splitlines() if "==" in line
    }
    wanted = {re.split(r"[\[><=; ]", name)[0] for name in project["project"]["dependencies"] + hook["dependencies"]}
    assert wanted <= locked


def test_the_wheel_holds_no_bench_and_no_attacker(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    packages = {name.split("/")[0] for name in names if ".dist-info/" not in name and "/" in name}
    assert packages == set(PACKAGES)
    of_loadgen = {name.split("/")[1] for name in names if name.startswith("loadgen/")}
    assert of_loadgen == {"__init__.py", "commands.py", "load", "standin"}
    assert {Path(name).suffix for name in names if ".dist-info/" not in name} <= {".py", ".pyi", ".so", *DATA}
    assert {f"proxy/admin/console/console.{kind}" for kind in ("html", "css", "js")} <= set(names)


def test_the_image_holds_the_packages_of_the_wheel_only():
    copied = re.findall(r"^COPY (\w+) \1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert copied == PACKAGES


def test_it_has_what_was_compiled_where_there_is_a_compiler(environment):
    assert run(environment, "version").endswith("(interpreted)\n" if missing_compiler() else "(compiled)\n")
    names = [name.replace("/", ".") for name in COMPILED]
    program = f"import {', '.join(names)}; print({', '.join(f'{name}.__file__' for name in names)}, sep='\\n')"
    where = [environment / "bin" / "python", "-c", program]
    files = subprocess.run(where, cwd=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert all(Path(file).is_relative_to(environment) for file in files)
    assert {Path(file).suffix for file in files} == {".py" if missing_compiler() else ".so"}


def test_it_reads_a_configuration(environment):
    config = environment / "sluice.yaml"
    config.write_text(CONFIG)
    assert "sluice.yaml" in run(environment, "check", "--config", str(config))


def test_version_is_that_of_the_tag(tmp_path):
    """A later commit has a development version of the next one; a copy without Git, as an image's, what it is told."""
    for file in BUILD:
        shutil.copy(ROOT / file, tmp_path)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "SETUPTOOLS_SCM_"))}
    env |= {f"GIT_{role}_{field}": "a@b" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}

    def version(**pretended):
        command = [sys.executable, "-m", "hatchling", "version"]
        done = subprocess.run(command, cwd=tmp_path, env=env | pretended, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def git(*words):
        subprocess.run(["git", *words], cwd=tmp_path, env=env, check=True, capture_output=True)

    assert version() == "0.dev0"
    assert version(SETUPTOOLS_SCM_PRETEND_VERSION="1.2.3") == "1.2.3"
    git("init")
    git("add", ".")
    git("commit", "--message", "a release")
    git("tag", "v1.2.3")
    assert version() == "1.2.3"
    git("commit", "--allow-empty", "--message", "the next commit")
    assert re.fullmatch(r"1\.2\.4\.dev1\+g[0-9a-f]+", version())


def test_same_sources_give_the_same_files_anywhere_at_any_time(tmp_path):
    """What has no machine code, as tools/release builds it."""
    made = []
    for name, age_s in (("here", 0), ("elsewhere/and/deeper", 1_000_000)):
        copy = tmp_path / name
        for package in PACKAGES:
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        for file in BUILD:
            shutil.copy(ROOT / file, copy)
        for file in copy.rglob("*"):
            os.utime(file, (2**30 - age_s,) * 2)
        env = os.environ | {"HATCH_BUILD_NO_HOOKS": "true", "SOURCE_DATE_EPOCH": "1700000000"}
        command = [sys.executable, "-m", "hatchling", "build", "--directory", str(copy / "dist")]
        subprocess.run(command, cwd=copy, check=True, capture_output=True, env=env)
        made.append({file.name: file.read_bytes() for file in (copy / "dist").iterdir()})
    assert {name.rpartition(".")[2] for name in made[0]} == {"whl", "gz"}
    assert made[0] == made[1]

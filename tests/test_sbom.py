"""The list of an image's parts, from a folder with the image's files."""

import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tools.sbom import add

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u9
Description: GNU C Library
 Version: of this line nothing is read

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: tzdata
Status: install ok installed
Architecture: all
Version: 1:2024a-0
"""
PYTHON = {"bom-ref": "msgspec==0.21", "name": "msgspec", "version": "0.21", "type": "library"}
JARS = {
    "jackson-core-2.15.2": {"org.shaded/other": "1", "com.fasterxml.jackson.core/jackson-core": "2.15.2"},
    "spark-core_2.13-4.0.0": {},
    "log4j-1.2-api-2.25.4": {"org.apache.logging.log4j/log4j-1.2-api": "2.25.4"},
    "netty-epoll-4.2.13.Final-linux-x86_64": {"io.netty/netty": "4.2.13.Final", "io.netty/netty-epoll": "4.2.13.Final"},
    "zstd-jni-1.5.7-7": {},
    "py4j0.10.9.9": {},
    "ivy": {},
}
"""Records of Maven, by the names of jars, as Spark 4.3 has them."""
LIBC = "pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64&distro=debian-12"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    jars = tmp_path / "opt/sluice/lib/pyspark/jars"
    headers = tmp_path / "usr/local/include/python3.11"
    for folder in (tmp_path / "etc", tmp_path / "var/lib/dpkg", jars, headers):
        folder.mkdir(parents=True)
    (headers / "patchlevel.h").write_text('#define PY_MICRO_VERSION\t16\n#define PY_VERSION      \t"3.11.16"\n')
    (tmp_path / "etc/os-release").write_text('PRETTY_NAME="Debian 12"\nID=debian\nVERSION_ID="12"\n')
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    for name, records in JARS.items():
        with zipfile.ZipFile(jars / f"{name}.jar", "w") as jar:
            for place, version in records.items():
                jar.writestr(f"META-INF/maven/{place}/pom.properties", f"#Made by Maven\nversion={version}\n")
            jar.writestr("x", "")
    (tmp_path / "sbom.cdx.json").write_text(json.dumps({"bomFormat": "CycloneDX", "components": [PYTHON]}))
    return tmp_path


def test_debians_packages_and_jars_are_added(image: Path) -> None:
    file = image / "sbom.cdx.json"
    assert add(file, image) == 3 + len(JARS)
    parts = {part["name"]: part for part in json.loads(file.read_text())["components"]}
    jars = {"jackson-core", "spark-core_2.13", "log4j-1.2-api", "netty-epoll", "zstd-jni", "py4j", "ivy"}
    assert set(parts) == {"msgspec", "python", "libc6", "tzdata"} | jars
    assert (parts["libc6"]["version"], parts["libc6"]["purl"]) == ("2.36-9+deb12u9", LIBC)
    assert (parts["python"]["version"], parts["python"]["purl"]) == ("3.11.16", "pkg:generic/python@3.11.16")
    assert parts["python"]["cpe"].startswith("cpe:2.3:a:python:python:3.11.16:")
    assert parts["tzdata"]["purl"].startswith("pkg:deb/debian/tzdata@1%3A2024a-0?arch=all")
    assert parts["jackson-core"]["purl"] == "pkg:maven/com.fasterxml.jackson.core/jackson-core@2.15.2"
    assert (parts["spark-core_2.13"]["version"], "purl" in parts["spark-core_2.13"]) == ("4.0.0", False)
    assert len(parts["spark-core_2.13"]["hashes"][0]["content"]) == 64
    assert parts["log4j-1.2-api"]["purl"] == "pkg:maven/org.apache.logging.log4j/log4j-1.2-api@2.25.4"
    netty = "pkg:maven/io.netty/netty-epoll@4.2.13.Final?classifier=linux-x86_64"
    assert (parts["netty-epoll"]["version"], parts["netty-epoll"]["purl"]) == ("4.2.13.Final", netty)
    assert [parts[name]["version"] for name in ("zstd-jni", "py4j")] == ["1.5.7-7", "0.10.9.9"]
    assert "version" not in parts["ivy"]


def test_second_run_adds_nothing(image: Path) -> None:
    file = image / "sbom.cdx.json"
    add(file, image)
    once = file.read_bytes()
    assert add(file, image) == 0
    assert file.read_bytes() == once


def test_both_images_run_it_on_their_last_stage() -> None:
    root = Path(__file__).parents[1]
    for file in ("Dockerfile", "deploy/compliance.Dockerfile"):
        last = (root / file).read_text().rpartition("\nFROM ")[2]
        assert "COPY tools/sbom.py /opt/" in last
        installs, runs = last.rfind("apt-get install"), last.find("python /opt/sbom.py /opt/sluice/sbom.cdx.json /")
        assert installs < runs, "it lists what the stage has installed"


@pytest.mark.parametrize("file", ["Dockerfile", "deploy/compliance.Dockerfile"])
def test_last_stage_takes_the_bases_pip_away(file: str, tmp_path: Path) -> None:
    """Source: docker-library/python, whose images have pip, setuptools and wheel in /usr/local."""
    own, packages = tmp_path / "usr/local/bin", tmp_path / "usr/local/lib/python3.11/site-packages"
    ensurepip, other = packages.parent / "ensurepip", packages.parent / "json"
    for folder in (own, packages / "pip", packages / "setuptools-79.0.1.dist-info", ensurepip, other):
        folder.mkdir(parents=True)
    for name in ("pip", "pip3.11", "wheel", "python3.11"):
        (own / name).touch()
    last = (Path(__file__).parents[1] / file).read_text().rpartition("\nFROM ")[2]
    for line in re.findall(r"^RUN (rm .*)$", last, re.MULTILINE):
        subprocess.run(["/bin/sh", "-c", line.replace(" /usr", f" {tmp_path}/usr")], check=True)
    left = {str(each.relative_to(tmp_path / "usr/local")) for each in (tmp_path / "usr/local").rglob("*")}
    lib = "lib/python3.11"
    assert left == {"bin", "bin/python3.11", "lib", lib, f"{lib}/site-packages", f"{lib}/json"}
    assert last.find("RUN rm") < last.find("RUN python /opt/sbom.py"), "the list has what is left"


def test_release_has_lists_beside_its_wheels() -> None:
    release = (Path(__file__).parents[1] / "tools/release").read_text()
    assert 'cyclonedx-py" requirements' in release
    assert "*.cdx.json >SHA256SUMS" in release

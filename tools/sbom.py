"""Adds to an image's list of parts (CycloneDX) what pip does not know: Python, Debian's packages, and Spark's jars.

python tools/sbom.py FILE ROOT     the list, made by cyclonedx-py, and the root of the image's files
"""

import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]
_RECORD = re.compile(r"META-INF/maven/(?P<group>[^/]+)/(?P<name>[^/]+)/pom\.properties")
_JAR = re.compile(r"(?P<name>.+?)(?:-(?=\d)|(?<=[A-Za-z])(?=\d+(?:\.\d+)+$))(?P<version>\d[\w.+-]*)")
"""NAME-VERSION, or NAMEVERSION as py4j0.10.9.9."""


def debian_packages(root: Path) -> Iterator[Component]:
    """Yield the packages that dpkg has installed."""
    release = root / "etc/os-release"
    distribution = dict(re.findall(r'^(\w+)="?([^"\n]*)', release.read_text(encoding="utf-8"), re.MULTILINE))
    of = f"{distribution['ID']}-{distribution['VERSION_ID']}"
    for paragraph in (root / "var/lib/dpkg/status").read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            place = f"{distribution['ID']}/{quote(name)}@{quote(version, safe='')}"
            url = f"pkg:deb/{place}?arch={fields['Architecture']}&distro={of}"
            yield {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def interpreters(root: Path) -> Iterator[Component]:
    """Yield each Python that was built from source, as Docker's official images have it: dpkg does not know it."""
    for header in sorted((root / "usr/local/include").glob("python3*/patchlevel.h")):
        version = re.findall(r'^#define PY_VERSION\s+"([\w.]+)', header.read_text(encoding="utf-8"), re.MULTILINE)[0]
        url = f"pkg:generic/python@{version}"
        cpe = f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*"
        yield {"type": "application", "bom-ref": url, "name": "python", "version": version, "cpe": cpe, "purl": url}


def jars(root: Path) -> Iterator[Component]:
    """Yield the jars under /opt, by Maven's names where they have them."""
    for file in sorted((root / "opt").rglob("*.jar")):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        part: Component = {"type": "library", "bom-ref": f"jar:{file.relative_to(root)}"}
        yield part | (_of_maven(file) or _of_its_name(file)) | {"hashes": [{"alg": "SHA-256", "content": digest}]}


def _of_maven(file: Path) -> Component | None:
    """Return what Maven has written into a jar about it: the jar's name is ARTIFACT-VERSION[-CLASSIFIER].

    A jar may hold others as well, each with its own record.
    """
    with zipfile.ZipFile(file) as jar:
        for entry in jar.namelist():
            place = _RECORD.fullmatch(entry)
            version = place and re.search(r"^version\s*=\s*(\S+)", jar.read(entry).decode(), re.MULTILINE)
            if not place or not version:
                continue
            group, name, rest = place["group"], place["name"], file.stem.removeprefix(f"{place['name']}-{version[1]}")
            if rest == file.stem or not (rest == "" or rest.startswith("-")):
                continue
            url = f"pkg:maven/{quote(group)}/{quote(name)}@{quote(version[1], safe='')}"
            url += f"?classifier={quote(rest[1:], safe='')}" if rest else ""
            return {"name": name, "version": version[1], "group": group, "purl": url}
    return None


def _of_its_name(file: Path) -> Component:
    stem = _JAR.fullmatch(file.stem)
    return {"name": stem["name"], "version": stem["version"]} if stem else {"name": file.stem}


def add(file: Path, root: Path) -> int:
    """Add the parts to the list; returns their number."""
    content = json.loads(file.read_text(encoding="utf-8"))
    known = {part.get("bom-ref") for part in content["components"]}
    more = [part for part in (*interpreters(root), *debian_packages(root), *jars(root)) if part["bom-ref"] not in known]
    content["components"] = sorted([*content["components"], *more], key=lambda part: str(part.get("bom-ref")))
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return len(more)


if __name__ == "__main__":
    print(f"{sys.argv[1]}: {add(Path(sys.argv[1]), Path(sys.argv[2]))} parts added")  # noqa: T201 - its answer

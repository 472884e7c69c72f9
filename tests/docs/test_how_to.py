"""The how-tos, followed as they are written: files are saved, and all commands run in one shell, in their order."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Self

import pytest

from loadgen.real.process import TetheredProcess, free_ports
from tests.docs.blocks import blocks_of
from tests.spark_java import spark_java
from tests.waiting import wait_for

FOLDER = Path(__file__).parents[2] / "docs/how-to"
PRACTICE = "practice.md"
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")
_LONGEST_S = 300


PAGES: dict[str, tuple[str, ...]] = {
    "limit-a-noisy-tenant.md": ("tenant crawler 100/s", "│ messages 100 +│ rest", "to     taken back"),
    "roll-out-in-observe-mode.md": ("would hold", "^sluice_would_throttle_seconds_total"),
    "migrate-from-broker-limits.md": ("3 values taken over", "│ messages 300"),
    "back-up-and-restore.md": ("producer +loud", "│ messages 100 +│ rest", "publish tenant crawler"),
    "upgrade.md": ("^conf: fine", r"^ready\ncrawler/web/pages"),
    "prove-that-a-limit-was-kept.md": ("^report/report.html", "ledger.html", "as the report read (it|them)"),
    "behind-a-load-balancer.md": ("tenant crawler .* of 100/s", "^shares of this member"),
}
"""The how-tos, and what a reader sees who follows one."""

_WITHOUT_PRACTICE = {"behind-a-load-balancer.md"}
_MARKS = {"prove-that-a-limit-was-kept.md": pytest.mark.spark, "behind-a-load-balancer.md": pytest.mark.haproxy}


class Reader:
    """Somebody who follows pages in an empty folder, with ports that are free here."""

    def __init__(self, folder: Path, *pages: str) -> None:
        text = "\n".join((FOLDER / page).read_text() for page in pages)
        ports = sorted(set(_PORT.findall(text)))
        here = dict(zip(ports, map(str, free_ports(*[0] * len(ports))), strict=True))
        text = re.sub(rf"\b({'|'.join(ports)})\b", lambda port: here[port[0]], text)
        steps = (
            f"mkdir -p $(dirname {name}); cat > {name} <<'SAVED'\n{block}SAVED\n" if name else block
            for _, block, name in blocks_of(text)
        )
        (folder / "followed.sh").write_text("set -euo pipefail\n" + "".join(steps))
        env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "JAVA_TOOL_OPTIONS": spark_java()}
        env["SLUICE_DRAIN__TIMEOUT"] = "30s"  # the default, which processes of tests do not have
        env["SLUICE_ADMIN"] = f"127.0.0.1:{here.get('8080', '')}"
        self._process = TetheredProcess(["sh", "-c", f"cd {folder} && exec bash followed.sh"], folder / "seen.txt", env)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def seen(self) -> str:
        return self._process.log_path.read_text()

    def follow(self) -> str:
        """Return what the reader sees to the end of the last page; no command may fail."""
        wait_for(lambda: self._process.exit_code is not None, _LONGEST_S, self.seen)
        assert self._process.exit_code == 0, self.seen()
        return self.seen()


def test_each_how_to_is_followed() -> None:
    assert {*PAGES, PRACTICE} == {path.name for path in FOLDER.glob("*.md")}


@pytest.mark.slow
@pytest.mark.parametrize("page", [pytest.param(page, marks=_MARKS.get(page, ())) for page in PAGES])
def test_a_reader_of_a_how_to_sees_what_it_says(page: str, tmp_path: Path) -> None:
    for needed in ("bash", "curl", *["haproxy"] * ("balancer" in page)):
        if shutil.which(needed) is None:
            pytest.skip(f"install {needed}")
    with Reader(tmp_path, *[PRACTICE] * (page not in _WITHOUT_PRACTICE), page) as reader:
        seen = reader.follow()
    for text in PAGES[page]:
        assert re.search(text, seen, re.MULTILINE), f"{text} is not in\n{seen}"

import contextlib
import json
from typing import NamedTuple

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from compliance import job, kept_days
from compliance.excerpt import DAY
from compliance.figures.sums import summed_by_day
from compliance.judging.judge import Judging
from compliance.logs import settings_of_sums
from compliance.report.report import Report
from compliance.schema import BEGIN_OF_1970
from compliance.session import spark_session
from compliance.tables import read_log
from protocol.exit_codes import ExitCode
from sluice.cli import app
from tests.compliance.modelled import write_modelled
from tests.compliance.planted import planted, topic_of, write_file
from tests.compliance.scenarios import ended, write_scenarios
from tests.spark_java import spark_java

FEW = 1_000
"""Lines of which no log here has many more: Spark plans each sum as in a report on so few."""

PROPOSED = (("topic", topic_of("fleet")), ("address", "127.0.0.1"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", spark_java())
        with spark_session(tmp_path_factory.mktemp("spark") / "spark.log", settings_of_sums(FEW)) as session:
            yield session


@pytest.fixture(scope="session")
def report_command(spark):
    """`sluice report` in this process, whose Java runs already."""

    def run(*words):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "spark_session", lambda *_, **__: contextlib.nullcontext(spark))
            return CliRunner().invoke(app, ["report", *map(str, words)])

    return run


@pytest.fixture(scope="session")
def planted_run(spark, report_command, tmp_path_factory):
    """What the command says of all planted logs, of which it finds a part read; the folders of logs and report."""
    folder, out = tmp_path_factory.mktemp("log"), tmp_path_factory.mktemp("out")
    write_scenarios(folder)
    write_modelled(folder)
    for ignored in ("_open.jsonl", ".open.jsonl", "notes.txt"):
        write_file(folder, ignored, planted("ignored", 3).encoded())
    read_log(spark, folder, job.prepare(out, folder, fresh=False), lambda _: None)
    write_file(folder, "later.jsonl", ended(planted("later", 5)).encoded())
    proposed = [{"level": level, "name": name, "messages": 70.0} for level, name in PROPOSED]
    (out / "what-if.yaml").write_text(yaml.safe_dump({"limits": proposed}))
    run = report_command("--access-log", folder, "--out", out, "--strict", "--what-if", out / "what-if.yaml")
    return run, folder, out


@pytest.fixture(scope="session")
def planted_logs(planted_run, tmp_path_factory):
    """The report on all planted logs, and where their files are now: not where they were read."""
    run, folder, out = planted_run
    assert run.exception is None or run.exit_code == ExitCode.FINDINGS, run.output
    moved = tmp_path_factory.mktemp("moved") / "log"
    folder.rename(moved)
    return msgspec.json.decode((out / "report.json").read_bytes(), type=Report), moved


@pytest.fixture(scope="session")
def planted_report(planted_logs):
    return planted_logs[0]


@pytest.fixture
def reported(report_command, tmp_path):
    """Make the report of the tables, or of the log; return what report.json holds, but for the moment."""

    def make(source, out, *options):
        place = {"--tables": tmp_path / "out", "--access-log": tmp_path / "log"}[source]
        run = report_command(source, place, "--out", tmp_path / out, *options)
        assert run.exit_code == 0, run.output
        report = json.loads((tmp_path / out / "report.json").read_bytes())
        return {name: value for name, value in report.items() if name not in ("read_at", "log_sha256")}

    return make


class Worked(NamedTuple):
    """The days that were summed up and those that were judged."""

    summed: list[str]
    judged: list[str]


@pytest.fixture
def worked(monkeypatch):
    """Tell, at each call, which days were summed up and judged since the last one."""
    summed: list[str] = []
    judged: list[str] = []

    def sum_days(lines, wanted):
        sums = summed_by_day(lines, wanted)
        summed.extend(sorted(sums))
        return sums

    def judge(self, lines, shards):
        results = of(self, lines, shards)
        judged.extend(sorted({str(BEGIN_OF_1970.date() + DAY * day) for day in results["limiters"]["day"].to_pylist()}))
        return results

    of = Judging.of
    monkeypatch.setattr(kept_days, "summed_by_day", sum_days)
    monkeypatch.setattr(Judging, "of", judge)

    def since():
        done = Worked(summed[:], judged[:])
        summed.clear()
        judged.clear()
        return done

    return since

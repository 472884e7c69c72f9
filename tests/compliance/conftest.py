import pytest

from compliance.figures.what_if import Proposal
from compliance.job import gather, settings_of_sums
from compliance.report.collect import ExtraQuestions
from compliance.report.report import make_report
from compliance.session import spark_session
from compliance.tables import read_log
from tests.compliance.modelled import write_modelled
from tests.compliance.planted import QUICK_JAVA, planted, topic_of, write_file
from tests.compliance.scenarios import ended, write_scenarios

FEW = 1_000
"""Lines of which no log here has many more: Spark plans each sum as in a report on so few."""

PROPOSED = (("topic", topic_of("fleet")), ("address", "127.0.0.1"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        with spark_session(tmp_path_factory.mktemp("spark") / "spark.log", settings_of_sums(FEW)) as session:
            yield session


@pytest.fixture(scope="session")
def planted_logs(spark, tmp_path_factory):
    """The report on all planted logs, read in two runs, and where their files are now: not where they were read."""
    folder, moved = tmp_path_factory.mktemp("log"), tmp_path_factory.mktemp("moved") / "log"
    write_scenarios(folder)
    write_modelled(folder)
    for ignored in ("_open.jsonl", ".open.jsonl", "notes.txt"):
        write_file(folder, ignored, planted("ignored", 3).encoded())
    work = tmp_path_factory.mktemp("work")
    read_log(spark, folder, work, lambda _: None)
    write_file(folder, "later.jsonl", ended(planted("later", 5)).encoded())
    tables = read_log(spark, folder, work, lambda _: None)
    folder.rename(moved)
    proposed = tuple(Proposal(level=level, name=name, messages=70.0) for level, name in PROPOSED)
    return make_report(gather(spark, tables, lambda _: None, ExtraQuestions(proposals=proposed))), moved


@pytest.fixture(scope="session")
def planted_report(planted_logs):
    return planted_logs[0]

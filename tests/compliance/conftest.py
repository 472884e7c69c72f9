import shutil

import pytest

from compliance.gather import gather
from compliance.ingest import Folders, ingest
from compliance.report import make_report
from compliance.session import spark_session
from tests.compliance.planted import QUICK_JAVA, planted, write_file
from tests.compliance.scenarios import write_scenarios


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        with spark_session(tmp_path_factory.mktemp("spark") / "spark.log") as session:
            yield session


@pytest.fixture(scope="session")
def planted_report(spark, tmp_path_factory):
    """The report on all planted logs, read in two runs; the log folder is gone before the sums are made."""
    folders = Folders(tmp_path_factory.mktemp("log"), tmp_path_factory.mktemp("work"))
    write_scenarios(folders.access_log)
    for ignored in ("_open.jsonl", ".open.jsonl", "notes.txt"):
        write_file(folders.access_log, ignored, planted("ignored", 3).encoded())
    ingest(spark, folders, lambda _: None)
    write_file(folders.access_log, "later.jsonl", planted("later", 5).encoded())
    ingest(spark, folders, lambda _: None)
    shutil.rmtree(folders.access_log)
    return make_report(gather(spark, folders, lambda _: None))

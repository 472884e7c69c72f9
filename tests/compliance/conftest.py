import pytest

from compliance.session import spark_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    with spark_session(tmp_path_factory.mktemp("spark") / "spark.log") as session:
        yield session

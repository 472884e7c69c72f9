import pytest

from loadgen.real.admin import PulsarAdmin
from loadgen.real.errors import ProcessFailed
from tests.loadgen.real.conftest import MAVEN_THAT_WORKS, Tool, java_that_says

ADMIN = PulsarAdmin("http://127.0.0.1:1", "pulsar://127.0.0.1:2")
PRINT_THE_REST = 'while [ "$1" != org.apache.pulsar.admin.cli.PulsarAdminTool ]; do shift; done'


def test_the_tool_gets_its_addresses_by_file_and_the_arguments_as_they_are(tool: Tool) -> None:
    tool("mvn", MAVEN_THAT_WORKS)
    version = f"case $1 in -version) {java_that_says('17')}; exit;; esac"
    tool("java", f'{version}\n{PRINT_THE_REST}\nwhile read line; do echo "$line"; done < $2\nshift 2; echo "$@"')
    assert ADMIN.run("topics", "list", "a/b").splitlines() == [
        "webServiceUrl=http://127.0.0.1:1/",
        "brokerServiceUrl=pulsar://127.0.0.1:2/",
        "topics list a/b",
    ]


def test_a_refusal_names_the_command_and_what_it_said(tool: Tool) -> None:
    tool("mvn", MAVEN_THAT_WORKS)
    tool("java", f"{java_that_says('17')}\necho Namespace does not exist; exit 1")
    with pytest.raises(ProcessFailed, match=r"pulsar-admin topics list a/b: ended with code 1\n(.|\n)*does not exist"):
        ADMIN.run("topics", "list", "a/b")

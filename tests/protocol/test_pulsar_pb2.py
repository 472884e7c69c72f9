"""The generated files are those that `make proto` would generate now, and fields have the numbers of their types."""

import subprocess
import sys
from pathlib import Path

import pytest

import protocol
from protocol.pulsar_pb2 import BaseCommand

ROOT = Path(protocol.__file__).parents[1]


def test_the_generated_files_are_fresh(tmp_path: Path) -> None:
    generate = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*generate, "protocol/pulsar.proto"], cwd=ROOT, check=True)
    for name in ("pulsar_pb2.py", "pulsar_pb2.pyi"):
        made = (tmp_path / "protocol" / name).read_text()
        assert made == (ROOT / "protocol" / name).read_text(), f"protocol/{name} is stale: run make proto"


@pytest.mark.parametrize("field", [field for field in BaseCommand.DESCRIPTOR.fields if field.name != "type"])
def test_a_commands_field_has_the_number_of_its_type(field) -> None:
    assert BaseCommand.Type.Name(field.number) == field.name.upper()

"""A real Kafka, Spark's connectors, and the PySpark that Delta and Iceberg need: Maven and pip fetch each once.

Each has a folder beside the jars of the real Pulsar.
"""

import os
import shutil
import subprocess
import sys

import pytest

from loadgen.real.jars import cache_folder, cache_lock, require_java
from loadgen.real.process import TetheredProcess, free_ports

KAFKA = ("org.apache.kafka:kafka_2.13:4.1.0", "org.apache.kafka:kafka-tools:4.1.0")
KAFKA_SOURCE = ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",)
DELTA = ("io.delta:delta-spark_4.1_2.13:4.4.0",)
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
PYSPARK = ("pyspark==4.1.3", "py4j==0.10.9.9")
"""The latest that the connectors of Delta and Iceberg are made for."""
_OF_SPARK = ("hadoop-client", "scala-library", "slf4j-api", "jackson-", "log4j-", "parquet-")
"""The begins of the names of jars that Spark has itself."""
_FETCH_S = 900
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
_PROJECT = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sluice</groupId><artifactId>connectors</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_CLUSTER = "sRVPJfJ1TWGWWhLbpv4NLg"
"""Kafka wants an id: any 16 bytes in base64."""


def jars_of(*artifacts):
    """The folder with these artifacts, `GROUP:NAME:VERSION` each, and all that they need."""
    if shutil.which("mvn") is None:
        pytest.skip("no Maven here: apt-get install maven")
    folder = cache_folder().with_name("+".join("-".join(artifact.split(":")[1:]) for artifact in artifacts))

    def fill(filling):
        dependencies = "".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
        (filling / "pom.xml").write_text(_PROJECT.format(dependencies))
        copied = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        _run([*copied, f"-DoutputDirectory={filling}"], cwd=filling)

    return _fetched(folder, fill)


def connector(*artifacts):
    """The option of Spark's that has it load a connector, without what Spark has."""
    jars = sorted(jar for jar in jars_of(*artifacts).glob("*.jar") if not jar.name.startswith(_OF_SPARK))
    return f"spark.jars={','.join(map(str, jars))}"


def other_pyspark():
    """The environment in which Python has the PySpark of these connectors."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *PYSPARK, "--target"]
    place = cache_folder().with_name(PYSPARK[0].replace("==", "-"))
    folder = _fetched(place, lambda filling: _run([*command, filling]))
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def _fetched(folder, fill):
    folder.parent.mkdir(parents=True, exist_ok=True)
    with cache_lock():
        if not folder.exists():
            filling = folder.with_name(f"{folder.name}.filling")
            shutil.rmtree(filling, ignore_errors=True)
            filling.mkdir()
            fill(filling)
            filling.rename(folder)
    return folder


def _run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class KafkaBroker:
    """One node of Kafka, broker and controller; it has no library that writes its log."""

    def __init__(self, folder):
        broker, controller = free_ports(0, 0)
        self.address = f"127.0.0.1:{broker}"
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
        self._java = [require_java(), *options, "-cp", f"{jars_of(*KAFKA)}/*"]
        properties = folder / "server.properties"
        properties.write_text(
            f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
            f"log.dirs={folder / 'kafka'}\noffsets.topic.replication.factor=1\n"
        )
        _run([*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", properties])
        self._server = TetheredProcess([*self._java, "kafka.Kafka", str(properties)], folder / "kafka.log")

    def __enter__(self):
        """Return the broker, which may still be starting."""
        return self

    def __exit__(self, *_):
        """Kill it."""
        self._server.kill()

    def make_topic(self, topic):
        """Make a topic of two partitions, once the broker has started."""
        self._tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")

    def send(self, topic, lines):
        """Send a message for each line."""
        self._tool("ConsoleProducer", "--topic", topic, given=b"".join(line + b"\n" for line in lines).decode())

    def _tool(self, name, *words, given=""):
        _run([*self._java, f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.address, *words], input=given)

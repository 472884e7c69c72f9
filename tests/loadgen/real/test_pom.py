import re

from loadgen.real.pom import ARTIFACTS, VERSION, pom


def test_every_dependency_leaves_out_the_etcd_client() -> None:
    dependencies = pom().rpartition("<dependencies>")[2]
    assert re.findall(r"<artifactId>(pulsar-[\w-]+)</artifactId>\s*<version>([\d.]+)", dependencies) == [
        (name, VERSION) for name in ARTIFACTS
    ]
    assert dependencies.count("<artifactId>jetcd-core-shaded</artifactId>") == len(ARTIFACTS)


def test_pulsar_s_own_version_table_is_imported() -> None:
    managed = pom().partition("</dependencyManagement>")[0]
    assert re.search(r"<artifactId>pulsar</artifactId>\s*<version>4.0.8</version>\s*<type>pom</type>", managed)
    assert "<scope>import</scope>" in managed

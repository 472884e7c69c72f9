"""The Maven project that names the jars of a real Pulsar, and nothing else."""

VERSION = "4.0.8"
ARTIFACTS = ("pulsar-broker", "pulsar-proxy", "pulsar-client-tools", "pulsar-testclient")
"""Broker, the official proxy, pulsar-admin, pulsar-perf: all of one version."""

# Not every mirror has this small artifact in VERSION; the neighbour's does the same.
_OPENTELEMETRY_VERSION = "4.0.7"

_DEPENDENCY = """\
    <dependency>
      <groupId>org.apache.pulsar</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
      <exclusions>
        <exclusion><groupId>*</groupId><artifactId>jetcd-core-shaded</artifactId></exclusion>
      </exclusions>
    </dependency>
"""

_PROJECT = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sluice</groupId>
  <artifactId>real-pulsar</artifactId>
  <version>{version}</version>
  <packaging>pom</packaging>
  <dependencyManagement>
    <dependencies>
    <dependency>
      <groupId>org.apache.pulsar</groupId>
      <artifactId>pulsar-opentelemetry</artifactId>
      <version>{opentelemetry}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.pulsar</groupId>
      <artifactId>pulsar</artifactId>
      <version>{version}</version>
      <type>pom</type>
      <scope>import</scope>
    </dependency>
    </dependencies>
  </dependencyManagement>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""


def pom() -> str:
    """The project file for `mvn dependency:copy-dependencies`.

    It imports Pulsar's own version table: left to itself Maven picks a netty whose FlowControlHandler never reads
    a connection again after a pause, so throttled producers would stall for ever. It leaves out the shaded etcd
    client, which only etcd needs and not every mirror has.
    """
    dependencies = "".join(_DEPENDENCY.format(artifact=name, version=VERSION) for name in ARTIFACTS)
    return _PROJECT.format(version=VERSION, opentelemetry=_OPENTELEMETRY_VERSION, dependencies=dependencies)

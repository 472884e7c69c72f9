"""Options for the Java of tests."""

SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Its second compiler would cost half of a broker's start, and gains less; to verify classes of pinned jars is an
eighth of the time of a short report. Without the second compiler Java keeps no more than 48 MB of machine code, which
Spark fills with three reports: then it would throw away and compile again without end."""

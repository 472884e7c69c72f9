"""The part of Pulsar's admin REST that `pulsar-admin` uses to set limits.

Paths, bodies and answers are those of a 4.0.8 broker, seen at work; where Sluice answers otherwise, its test says why.
"""

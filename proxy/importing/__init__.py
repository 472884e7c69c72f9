"""`sluice import`: translates the limits of a Pulsar broker into Sluice's configuration."""

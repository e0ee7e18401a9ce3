"""Stand-ins on loopback for what tests must not reach: the model hub and the package index."""

"""Other tools doing the sweep's work, each in an environment of its own; `bench/figures/rivals.py` compares."""

"""Trains sparse autoencoders: `data` collects residuals once, `loop` trains on them, `stage` is the rule's call."""

"""Neuronpedia's bulk data about a pairing's SAE, brought into the shape of our own artefacts.

`import_features` makes labels, a prior of firing rates and logits, `import_examples` examples. Nothing published is
believed unseen: rows that cannot be right are left out and counted by reason, files that are no such data are refused.
"""

from __future__ import annotations

from neuroscope.neuronpedia.stage import import_examples, import_features, names_of, refresh

__all__ = ["import_examples", "import_features", "names_of", "refresh"]

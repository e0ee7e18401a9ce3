"""Naming features and scoring the names: from examples to labels, from labels to detection scores.

`labeler` is the interface and the driver, `tokens` the labeler that needs no key, `prompt` what Claude is asked,
`scoring` the detection scores, `logits` the tokens that a feature promotes. No label is chosen or shown here.
"""

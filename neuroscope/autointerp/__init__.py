"""Naming features and scoring the names: from examples to labels, from labels to detection scores.

`labeler` is the interface, `pipeline` the drivers, `tokens` the labeler that needs no key, `prompt` what a language
model is asked and `calls` how, `own` the labels of a file, `outcome` what is written; `scoring` the scores, `trials`
the windows they rest on, `judging` a language model's verdicts; `logits` the tokens that a feature promotes. No label
is chosen or shown here.
"""

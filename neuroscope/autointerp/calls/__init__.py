"""Calls to a language model: many asks, each paid once, whatever happens on the way.

`ask` holds the words that everything here shares and the `Client` that a service implements (`claude`,
`chat_completions`); `ledger` remembers every answer, `runner` asks at once, `batches` by batch, `prices` counts
dollars, `estimate` tells them beforehand. What is asked and what a good answer is are the callers' business.
"""

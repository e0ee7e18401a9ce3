"""The two HTTP servers: chat completions in OpenAI's shape, and what the model's features do meanwhile.

The only package that knows gevent, Flask and gunicorn. It computes no activation and no ranking itself.
"""

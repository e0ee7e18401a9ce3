"""Language models: loading, the hook, the forward pass, chat templates and text."""

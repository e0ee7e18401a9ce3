rule labels:
    input: rules.examples.output.examples
rule scores:
    input: rules.examples.output.examples

"""The dry run: memory, communication and cost of a step before it runs."""

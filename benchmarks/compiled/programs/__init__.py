"""The text of a compiled program: kernels, traffic and messages."""

"""Python interface to saved runs, for encoding, evaluation and translation."""

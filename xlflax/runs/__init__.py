"""Python interface to saved runs: encoding, evaluation and translation."""

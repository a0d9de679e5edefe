"""Written folders computed anew, by numpy, and compared with the model."""

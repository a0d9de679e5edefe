"""Tasks over the plain text of a corpus directory, without TensorFlow."""

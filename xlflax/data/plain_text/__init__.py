"""Tasks that read the plain text of a corpus directory, without TensorFlow."""

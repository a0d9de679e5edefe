"""Conversion of tokenizer files to and from vocabularies."""

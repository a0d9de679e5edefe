"""Conversion between tokenizer files and xlflax vocabularies."""

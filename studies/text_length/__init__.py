"""Measurement of the clean text that `xlflax preprocess` drops by mistake."""

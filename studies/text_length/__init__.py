"""Measurement of how much clean text `xlflax preprocess` drops by mistake."""

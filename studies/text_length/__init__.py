"""Clean text that the filters of `xlflax preprocess` drop by mistake."""

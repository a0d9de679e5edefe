"""False drops of the filters of `xlflax preprocess` on clean text."""

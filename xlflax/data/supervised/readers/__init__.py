"""Readers of labeled examples in public file formats.

Each module contains the readers of related formats. A reader is a function that
takes paths and languages and returns a `Reading`. No module of this package
imports TensorFlow.
"""

"""SeqIO tasks over public corpora, which are registered on import.

`wiki40b`, `mc4`, `opus`, `paracrawl` and `wmt` read prepared TensorFlow
Datasets. docs/tasks.md explains how to register tasks over your own data.
"""

"""SeqIO tasks over public corpora; importing a module registers its tasks.

`wiki40b`, `mc4`, `opus`, `paracrawl` and `wmt` read TensorFlow Datasets that
lie prepared on disk. docs/tasks.md shows how to register your own.
"""

"""SeqIO tasks over public corpora. Importing this package registers them.

`wiki40b`, `mc4`, `opus`, `paracrawl` and `wmt` read prepared TensorFlow
Datasets. `web_corpora` reads FineWeb2, HPLT, MADLAD-400, GlotCC and CC-100.
docs/tasks.md explains how to register tasks over your own data.
"""

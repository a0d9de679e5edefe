"""Files of labelled examples in the public formats, read into plain values.

One module per family of formats, with functions from paths and languages to a
`Reading`. No module here imports TensorFlow.
"""

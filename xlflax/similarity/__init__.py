"""Similarity functions on arrays, such as CKA, Procrustes maps and CSLS."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.similarity import (
    cosine,
    csls,
    margin_scoring,
    procrustes,
    word_links,
  )
  from xlflax.similarity.cka import LayerCKA, linear_cka
  from xlflax.similarity.procrustes import fit_alignment, orthogonal_map
  from xlflax.similarity.vector_normalization import iterative_normalization

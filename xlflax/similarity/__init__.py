"""Pure functions on vectors: CKA, Procrustes maps, CSLS, neighbours, margins, word alignment."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.similarity import cosine, csls, margin, procrustes, word_alignment
  from xlflax.similarity.cka import LayerCKA, linear_cka
  from xlflax.similarity.normalization import iterative_normalization
  from xlflax.similarity.procrustes import align, orthogonal_map

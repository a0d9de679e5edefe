"""Words as rows of the table of embeddings.

Source: ECS (Wu et al., 2020) section 5.1.1: only words that are one piece.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from xlflax import errors
from xlflax.analysis import dictionaries
from xlflax.data import language_codes
from xlflax.evaluation import base
from xlflax.models import sharing


def embedding_vectors(
  subject: base.Subject, words: Sequence[str], language: str
) -> dictionaries.WordVectors:
  """The embeddings of those words that are a single piece.

  Args:
    subject: the model and its vocabulary.
    words: of one language; repeated ones count once.
    language: its code.

  Raises:
    AnalysisError: no word is a single piece.
    VocabularyError: the model needs the language and lacks it.
  """
  index = language_codes.language_id(
    subject.vocabulary, language, [], required=subject.needs_languages
  )
  code = subject.vocabulary.spec.languages[index]
  words = list(dict.fromkeys(words))
  pieces = subject.vocabulary.encode_batch(words, language=code)
  unknown = subject.vocabulary.spec.unk_id
  single = {
    word: ids[0]
    for word, ids in zip(words, pieces, strict=True)
    if len(ids) == 1 and ids[0] != unknown
  }
  if not single:
    raise errors.AnalysisError(
      'No word is a single piece of the vocabulary',
      got=f'{len(words)} words',
      where=language,
    )
  params = sharing.select(
    subject.sharing, subject.params['model'], jnp.int32(index)
  )
  rows = np.fromiter(single.values(), np.int64, len(single))
  table = params['embeddings']['token']  # [vocabulary, H]
  return dictionaries.WordVectors(
    tuple(single), np.asarray(table[rows], np.float32)
  )

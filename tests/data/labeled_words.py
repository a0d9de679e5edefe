"""Word vocabulary in which words ending in -s have two tokens."""

from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec


class WordVocabulary:
  """Encodes `the dogs` as `▁the ▁dog s`; IDs follow the order of first use."""

  needs_language = False

  def __init__(self, words=(), languages=('en', 'fr'), size=32):
    self.spec = VocabularySpec(
      size=size,
      pad_id=0,
      bos_id=1,
      eos_id=2,
      unk_id=3,
      mask_id=4,
      special_ids=(0, 1, 2, 3, 4),
      languages=languages,
    )
    self._ids: dict[str, int] = {}
    for word in words:
      self.encode(word)

  def encode(self, text, *, language=None):
    del language
    token_ids = []
    for word in text.split():
      stem, end = (word[:-1], ['s']) if word.endswith('s') else (word, [])
      token_ids += [f'▁{stem}', *end]
    return [self._id(piece) for piece in token_ids]

  def encode_batch(self, texts, *, language=None):
    return [self.encode(text, language=language) for text in texts]

  def encode_each(self, texts, language_ids):
    del language_ids
    return [self.encode(text) for text in texts]

  def bare_piece(self, index, *, language=None):
    del language
    return {number: piece for piece, number in self._ids.items()}[index]

  def piece_id(self, piece, *, language=None):
    del language
    return self._ids.get(piece)

  def language_id(self, code):
    return self.spec.languages.index(code)

  def _id(self, piece):
    if piece not in self._ids:
      # Probes by `words` share the unknown ID once the vocabulary is full.
      if len(self._ids) + 5 >= self.spec.size:
        return self.spec.unk_id
      self._ids[piece] = 5 + len(self._ids)
    return self._ids[piece]

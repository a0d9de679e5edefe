"""Text after encoding and decoding, to find what a vocabulary cannot represent.

SentencePiece's default normalization (`nmt_nfkc`) replaces full-width letters and
punctuation, and removes zero-width joiners. A decoder can then never produce
them, which limits translation scores (BLEU of the references themselves: 82 in
Persian, 85 in Chinese). `identity` keeps all text.
"""

from collections.abc import Sequence

from xlflax.data.tokenizers.base_vocabulary import Vocabulary


def decode_encoded(
  vocabulary: Vocabulary, texts: Sequence[str], language: str
) -> list[str]:
  """Returns each text after encoding and decoding.

  Args:
    vocabulary: A vocabulary.
    texts: Texts of one language.
    language: Language code, as the vocabulary spells it.
  """
  return [
    vocabulary.decode(ids, language=language)
    for ids in vocabulary.encode_batch(list(texts), language=language)
  ]


def count_changed(texts: Sequence[str], decoded: Sequence[str]) -> int:
  """Returns the number of texts that differ, apart from white space."""
  return sum(
    before.split() != after.split()
    for before, after in zip(texts, decoded, strict=True)
  )

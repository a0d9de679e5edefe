"""Detection of text that changes when a vocabulary encodes and decodes it.

SentencePiece's default normalization (`nmt_nfkc`) replaces full-width letters
and punctuation and removes zero-width joiners. A decoder can therefore never
generate these characters, which limits translation scores. Even the reference
translations, after encoding and decoding, have a BLEU score of only 82 in
Persian and 85 in Chinese. The normalization `identity` preserves all text.
"""

from collections.abc import Sequence

from xlflax.data.tokenizers.base_vocabulary import Vocabulary


def decode_encoded(
  vocabulary: Vocabulary, texts: Sequence[str], language: str
) -> list[str]:
  """Encodes each text, decodes the ids and returns the resulting texts.

  Args:
    vocabulary: Vocabulary that encodes and decodes the texts.
    texts: Texts in the same language.
    language: Language code, as spelled in the vocabulary.
  """
  return [
    vocabulary.decode(ids, language=language)
    for ids in vocabulary.encode_batch(list(texts), language=language)
  ]


def count_changed(texts: Sequence[str], decoded: Sequence[str]) -> int:
  """Counts the texts that differ after encoding and decoding.

  Changes of white space are ignored.

  Args:
    texts: Original texts.
    decoded: Texts after encoding and decoding, in the same order.
  """
  return sum(
    before.split() != after.split()
    for before, after in zip(texts, decoded, strict=True)
  )

"""Vocabularies with given pieces for tests of matching."""

import dataclasses

from xlflax.data.tokenizers import vocabulary_spec

SPECIAL = ('<pad>', '<s>', '</s>', '<unk>', '<mask>')


@dataclasses.dataclass(frozen=True)
class Pieces:
  """The part of a vocabulary that matching reads."""

  text: tuple[str, ...]
  languages: tuple[str, ...] = ()
  sentinels: int = 0

  @property
  def all(self) -> tuple[str, ...]:
    return (
      SPECIAL
      + tuple(f'<lang:{code}>' for code in self.languages)
      + self.text
      + tuple(f'<sentinel:{i}>' for i in range(self.sentinels))
    )

  @property
  def spec(self) -> vocabulary_spec.VocabularySpec:
    size, first = len(self.all), len(SPECIAL)
    symbols = tuple(range(first, first + len(self.languages)))
    sentinels = tuple(range(size - self.sentinels, size))
    return vocabulary_spec.VocabularySpec(
      size=size,
      pad_id=0,
      bos_id=1,
      eos_id=2,
      unk_id=3,
      mask_id=4,
      special_ids=(0, 1, 2, 3, 4, *symbols, *sentinels),
      languages=self.languages,
      language_symbol_ids=symbols,
      sentinel_ids=sentinels,
    )

  def piece(self, i: int) -> str:
    return self.all[i]

  def __len__(self) -> int:
    return len(self.all)

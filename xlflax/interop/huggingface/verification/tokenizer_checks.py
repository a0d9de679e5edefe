"""Comparison of a folder's tokenizer with a run's vocabulary."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence

from xlflax.data.dataset_config import SpecialTokenTemplate
from xlflax.data.tokenizers import base_vocabulary
from xlflax.interop.huggingface import config_json
from xlflax.interop.huggingface.tokenizers import post_processor
from xlflax.utils import errors

DIFFICULT_TEXTS = (
  'The cat, 1,234 dogs & <b>mice</b>!',
  'Tất cả mọi người sinh ra đều được tự do.',
  'Ta\u0302\u0301t ca\u0309 mo\u0323i ngu\u031bo\u031b\u0300i, cafe\u0301',
  'a\u0323\u0302 o\u0302\u0323 A\u0327 가 각 가\u11a8 ㄱㅏ',
  'يولد جميع الناس أحرارًا، بَّ ذَّ',
  'שָׁלוֹם עולם',
  '👩\u200d👩\u200d👧 👍🏽 ❤️',
  '人人生而自由，～「ガが」ﾊﾝｶｸ ①½',
  'ทุกคนเกิดมามีอิสระ น้ำ',
  'मनुष्य जन्म से स्वतन्त्र क़',
  '  two  spaces\tand\nlines ',
  'zero\u200bwidth\u00a0nbsp İstanbul ẞ',
  '',
)
# Marker of SentencePiece, which tokenizers interpret as a space.
_SPACE_MARKER = '▁'
_NUM_SAMPLED_TOKENS = 512


def check_tokenizer(
  vocabulary: base_vocabulary.Vocabulary,
  folder: pathlib.Path,
  *,
  texts: Iterable[str] = (),
) -> list[str]:
  """Compares token ids from `tokenizer.json` with those from the vocabulary.

  Args:
    vocabulary: Vocabulary of the run.
    folder: Folder with the tokenizer files.
    texts: Texts to encode and compare, in addition to `DIFFICULT_TEXTS` and
      decoded tokens of the vocabulary.

  Returns:
    Sentences that describe which comparisons were skipped and why.

  Raises:
    VocabularyError: If two tokenizers encode a text with different token ids.
  """
  tokenizer = post_processor.load_without_truncation(folder)
  if tokenizer is None:
    return [
      'The token ids were not compared, because the folder has no '
      f'{post_processor.FILE}.'
    ]
  tokenizer.encode_special_tokens = True
  spec = vocabulary.spec
  ordinary = [i for i in range(spec.size) if i not in set(spec.special_ids)]
  sample = ordinary[:: len(ordinary) // _NUM_SAMPLED_TOKENS + 1]
  decoded = [
    vocabulary.decode(sample[i : i + 16]) for i in range(0, len(sample), 16)
  ]
  for text in (*DIFFICULT_TEXTS, *decoded, *texts):
    if _SPACE_MARKER not in text:
      actual = tokenizer.encode(text, add_special_tokens=False).ids
      _compare_ids(
        f'the text {text!r}', actual, vocabulary.encode(text), folder
      )

  config_path = folder / 'tokenizer_config.json'
  pad_token = None
  if config_path.exists():
    pad_token = config_json.read_json(config_path).get('pad_token')
  if isinstance(pad_token, Mapping):
    pad_token = pad_token.get('content')
  if pad_token is not None:
    _compare_ids(
      f'the padding token {pad_token!r}',
      [tokenizer.token_to_id(pad_token)],
      [spec.pad_id],
      folder,
    )
  return []


def check_pair_template(
  vocabulary: base_vocabulary.Vocabulary,
  folder: pathlib.Path,
  separator: SpecialTokenTemplate,
  *,
  num_types: int,
) -> None:
  """Compares the special tokens of a text pair with those used in training.

  Args:
    vocabulary: Vocabulary of the run.
    folder: Folder with the tokenizer files.
    separator: Special tokens that separate the two texts of a pair.
    num_types: Number of token types that the model distinguishes.

  Raises:
    VocabularyError: If the token ids differ, or if the token types of a model
      with several types differ.
  """
  tokenizer = post_processor.load_without_truncation(folder)
  if tokenizer is None:
    return
  actual = tokenizer.encode('', '')
  ids, types = zip(
    *post_processor.pair_template(vocabulary, separator, num_types=num_types),
    strict=True,
  )
  _compare_ids('a text pair', actual.ids, ids, folder)
  if num_types > 1:
    _compare_ids('the types of a text pair', actual.type_ids, types, folder)


def _compare_ids(
  name: str,
  actual: Sequence[int | None],
  expected: Sequence[int],
  folder: pathlib.Path,
) -> None:
  if list(actual) != list(expected):
    raise errors.VocabularyError(
      'The exported tokenizer and the vocabulary must return the same token '
      f'ids for {name}',
      got=list(actual)[:40],
      expected=list(expected)[:40],
      where=str(folder / post_processor.FILE),
      fix='Open an issue that describes the vocabulary. Nothing was written.',
    )

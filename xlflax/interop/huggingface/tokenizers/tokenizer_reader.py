"""A folder's tokenizer files as an `xlflax` vocabulary.

tokenizer.json is read as it is; without it, the older files are: vocab.txt
(WordPiece), vocab.json and merges.txt (byte-level BPE; XLM's BPE), and
SentencePiece models with the ids of fairseq, T5 or DeBERTa. ByT5 has none.
"""

import json
import pathlib
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from xlflax.data.tokenizers import base_vocabulary, tokenizer_errors
from xlflax.data.tokenizers import fairseq_vocabulary as vocabulary_fairseq
from xlflax.data.tokenizers import (
  huggingface_vocabulary as vocabulary_tokenizers,
)
from xlflax.data.tokenizers import imported_vocabulary as vocabulary_imported
from xlflax.data.tokenizers import xlm_vocabulary as vocabulary_xlm
from xlflax.interop import safe_paths
from xlflax.interop.huggingface.tokenizers import checkpoint_languages
from xlflax.utils import errors

# What is copied, so that a model goes back with the files that it came with.
FILES = (
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.txt',
  'vocab.json',
  'merges.txt',
  'sentencepiece.bpe.model',
  'spiece.model',
  'spm.model',
)
_FAIRSEQ_MODEL = 'sentencepiece.bpe.model'
_T5_MODEL = 'spiece.model'
_DEBERTA_MODEL = 'spm.model'
# T5 has no symbols for these: its text begins without one, and what is
# masked is marked by sentinels.
_WORDPIECE = dict(
  pad='[PAD]', bos='[CLS]', eos='[SEP]', unk='[UNK]', mask='[MASK]'
)
_ROBERTA = dict(pad='<pad>', bos='<s>', eos='</s>', unk='<unk>', mask='<mask>')
_XLM = dict(pad='<pad>', bos='<s>', eos='</s>', unk='<unk>', mask='<special1>')
_T5 = dict(
  pad='<pad>', bos='<pad>', eos='</s>', unk='<unk>', mask='<extra_id_0>'
)
_USUAL = {
  'bert': _WORDPIECE,
  'modernbert': _WORDPIECE,
  'distilbert': _WORDPIECE,
  'deberta-v2': _WORDPIECE,
  'nomic_bert': _WORDPIECE,
  'xlm': _XLM,
  't5': _T5,
  'mt5': _T5,
  'umt5': _T5,
}
_CLASS = 'tokenizer_class'
# What reads vocab.txt, and what reads vocab.json with merges.txt.
_WORDPIECES = (
  'Bert DistilBert Electra MobileBert ConvBert Funnel MPNet Splinter'
)
_BYTE_LEVELS = 'Roberta Bart GPT2 Longformer LED Deberta Blenderbot ModernBert'
_KEYS = {
  'pad': ('pad_token',),
  'bos': ('cls_token', 'bos_token'),
  'eos': ('sep_token', 'eos_token'),
  'unk': ('unk_token',),
  'mask': ('mask_token',),
}


def read_tokenizer(
  folder: pathlib.Path,
  *,
  model_type: str,
  size: int | None,
  languages: tuple[str, ...] | None,
) -> base_vocabulary.Vocabulary:
  """The folder's tokenizer.

  Args:
    folder: a folder as `save_pretrained` writes it.
    model_type: of its config.json.
    size: rows of the embeddings, if more than the tokenizer's are wanted.
    languages: codes to give ids to; of mBART, those of its symbols that are
      wanted, None for all.

  Raises:
    VocabularyError: there are no tokenizer files, or they cannot be read.
  """
  safe_paths.check_no_links(folder, FILES)
  settings = _settings(folder)
  codes = checkpoint_languages.symbols_of(folder, settings, model_type)
  languages, symbols = checkpoint_languages.choose_languages(codes, languages)
  layout = vocabulary_imported.Layout(
    _roles(settings, model_type), languages, size, symbols
  )
  if (folder / vocabulary_tokenizers.FILE).is_file():
    content = (folder / vocabulary_tokenizers.FILE).read_bytes()
    return vocabulary_tokenizers.TokenizersVocabulary(content, layout)
  if model_type == 'm2m_100':
    raise errors.VocabularyError(
      "M2M-100's and NLLB's older files are not read: their ids are not those "
      'of the SentencePiece model',
      got=', '.join(tokenizer_file_names(folder)) or 'no tokenizer',
      expected=vocabulary_tokenizers.FILE,
      where=str(folder),
      fix='save the tokenizer with transformers, which writes tokenizer.json',
    )
  for name, kind in (
    (_FAIRSEQ_MODEL, vocabulary_fairseq.IdLayout.FAIRSEQ),
    (_T5_MODEL, vocabulary_fairseq.IdLayout.T5),
    (_DEBERTA_MODEL, vocabulary_fairseq.IdLayout.DEBERTA),
  ):
    if (folder / name).is_file():
      return vocabulary_fairseq.MovedSentencePieceVocabulary(
        (folder / name).read_bytes(),
        layout,
        id_layout=kind,
        extra_ids=settings.get('extra_ids', 100) if name == _T5_MODEL else 0,
        codes=codes if name == _FAIRSEQ_MODEL else (),
      )
  if model_type == 'xlm' and (folder / vocabulary_xlm.MERGES).is_file():
    return vocabulary_xlm.XLMVocabulary(
      {
        name: _read(folder / name)
        for name in (vocabulary_xlm.VOCABULARY, vocabulary_xlm.MERGES)
      },
      layout,
      lower=settings.get('do_lowercase_and_remove_accent', True),
    )
  built = _build(folder, settings)
  if built is None:
    raise errors.VocabularyError(
      'There are no tokenizer files that are known',
      got=str(folder),
      expected='tokenizer.json, vocab.txt, vocab.json with merges.txt, '
      f'{_FAIRSEQ_MODEL}, {_T5_MODEL} or {_DEBERTA_MODEL}',
      fix='save the tokenizer there, or name an xlflax vocabulary by '
      '--vocabulary=DIR',
    )
  return vocabulary_tokenizers.TokenizersVocabulary(
    built.to_str().encode(), layout
  )


def tokenizer_file_names(folder: pathlib.Path) -> list[str]:
  """The tokenizer's own files in a folder."""
  return [name for name in FILES if (folder / name).is_file()]


def _read(path: pathlib.Path) -> bytes:
  try:
    return path.read_bytes()
  except OSError as error:
    raise errors.VocabularyError(
      'A file of the tokenizer cannot be read',
      got=error.strerror,
      where=str(path),
    ) from error


def _settings(folder: pathlib.Path) -> dict[str, Any]:
  settings: dict[str, Any] = {}
  for name in (
    'config.json',
    'special_tokens_map.json',
    'tokenizer_config.json',
  ):
    try:
      text = (folder / name).read_text(encoding='utf-8')
      settings |= json.loads(text)
      if name == 'config.json':  # which has settings of the model, too
        settings = {_CLASS: settings.get(_CLASS)}
    except FileNotFoundError:
      continue
    except (OSError, ValueError, TypeError, RecursionError) as error:
      raise errors.VocabularyError(
        f'{name} cannot be read', got=str(error), where=str(folder / name)
      ) from error
  return settings


def _roles(settings: dict[str, Any], model_type: str) -> dict[str, str]:
  """The token of each role: what the files say, else the model's usual."""
  usual = _USUAL.get(model_type, _ROBERTA)
  roles = {}
  for role, keys in _KEYS.items():
    if model_type == 'xlm':  # which names </s> as class token
      keys = keys[::-1] if role == 'bos' else keys
    configured = [_content(settings[key]) for key in keys if settings.get(key)]
    is_configurable = model_type not in ('t5', 'mt5', 'umt5') or role in (
      'pad',
      'eos',
      'unk',
    )
    roles[role] = (
      configured[0] if configured and is_configurable else usual[role]
    )
    if not configured and role == 'unk' and model_type == 'eurobert':
      roles[role] = roles['pad']  # bytes know no unknown
    if role == 'bos' and not is_configurable:  # T5 begins with padding
      roles[role] = roles['pad']
  return roles


def _content(token) -> str:
  content = token.get('content') if isinstance(token, dict) else token
  if not isinstance(content, str):
    raise errors.VocabularyError(
      'A special token is no text', got=str(token)[:300]
    )
  return content


def _build(folder: pathlib.Path, settings) -> tokenizers.Tokenizer | None:
  """A tokenizer from the files that preceded tokenizer.json, or None."""
  with tokenizer_errors.converting_tokenizer_errors(
    'The tokenizer files cannot be read'
  ):
    if (folder / 'vocab.txt').is_file():
      _check_class(settings, _WORDPIECES)
      return _wordpiece(str(folder / 'vocab.txt'), settings)
    if (folder / 'vocab.json').is_file() and (folder / 'merges.txt').is_file():
      _check_class(settings, _BYTE_LEVELS)
      return _byte_level(folder, settings)
    if settings.get('tokenizer_class') == 'ByT5Tokenizer':
      return _bytes(settings)
  return None


def _check_class(settings, known: str) -> None:
  """Refuses tokenizers that have such files and cut text by other rules."""
  full = settings.get('tokenizer_class') or ''
  class_stem = full.removesuffix('Fast').removesuffix('Tokenizer')
  cut = settings.get('word_tokenizer_type', 'basic')  # of Japanese ones
  if class_stem not in ('', 'PreTrained', *known.split()) or cut != 'basic':
    raise errors.VocabularyError(
      'The tokenizer cuts text by rules of its own',
      got=f'{full or "a tokenizer"}, word_tokenizer_type {cut!r}',
      expected=f'{vocabulary_tokenizers.FILE}, or one of {known}',
      fix='give a vocabulary of xlflax by --vocabulary=DIR',
    )


def _bytes(settings) -> tokenizers.Tokenizer:
  """ByT5's: three special tokens, the bytes, sentinels (Xue et al., 2022)."""
  special = [_T5[role] for role in ('pad', 'eos', 'unk')]
  # A byte stands for itself, or, if that is no visible character, for one
  # beyond them all, in order.
  letters = sorted(pre_tokenizers.ByteLevel.alphabet())
  hidden = sorted({*range(256)} - {*map(ord, letters)})
  printable_bytes = [ord(letter) for letter in letters if ord(letter) < 256]
  tokens = {
    letter: 3 + i
    for letter, i in zip(letters, printable_bytes + hidden, strict=True)
  }
  tokens |= {token: i for i, token in enumerate(special)}
  built = tokenizers.Tokenizer(models.BPE(tokens, []))
  built.pre_tokenizer = pre_tokenizers.ByteLevel(
    add_prefix_space=False, use_regex=False
  )
  built.decoder = decoders.ByteLevel()
  extra = range(settings.get('extra_ids') or 125)
  built.add_special_tokens([*special, *(f'<extra_id_{i}>' for i in extra)])
  built.post_processor = processors.TemplateProcessing(
    single='$A </s>', pair='$A </s> $B </s>', special_tokens=[('</s>', 1)]
  )
  return built


def _wordpiece(path: str, settings) -> tokenizers.Tokenizer:
  unknown = _content(settings.get('unk_token', _WORDPIECE['unk']))
  built = tokenizers.Tokenizer(
    models.WordPiece.from_file(path, unk_token=unknown)
  )
  built.normalizer = normalizers.BertNormalizer(
    clean_text=True,
    handle_chinese_chars=settings.get('tokenize_chinese_chars', True),
    strip_accents=settings.get('strip_accents'),
    lowercase=settings.get('do_lower_case', True),
  )
  built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  built.decoder = decoders.WordPiece(prefix='##')
  _, begin, end, *_ = special = [
    _content(settings.get(f'{key}_token', f'[{key.upper()}]'))
    for key in ('pad', 'cls', 'sep', 'unk', 'mask')
  ]
  built.add_special_tokens(special)
  built.post_processor = processors.BertProcessing(
    _numbered(built, end), _numbered(built, begin)
  )
  return built


def _numbered(built: tokenizers.Tokenizer, token: str) -> tuple[str, int]:
  """A token that was added, and its id."""
  number = built.token_to_id(token)
  assert number is not None
  return token, number


def _byte_level(folder: pathlib.Path, settings) -> tokenizers.Tokenizer:
  vocabulary_imported.check_ids(
    json.loads((folder / 'vocab.json').read_bytes()).values()
  )
  built = tokenizers.Tokenizer(
    models.BPE.from_file(str(folder / 'vocab.json'), str(folder / 'merges.txt'))
  )
  built.pre_tokenizer = pre_tokenizers.ByteLevel(
    add_prefix_space=settings.get('add_prefix_space', False)
  )
  built.decoder = decoders.ByteLevel()
  built.add_special_tokens(list(_ROBERTA.values()))
  built.post_processor = processors.RobertaProcessing(
    _numbered(built, _ROBERTA['eos']),
    _numbered(built, _ROBERTA['bos']),
    add_prefix_space=settings.get('add_prefix_space', False),
  )
  return built

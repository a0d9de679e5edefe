"""Reader that converts a folder's tokenizer files to a vocabulary.

tokenizer.json is used if it exists. Otherwise, the files that preceded it are
read: vocab.txt (WordPiece), vocab.json and merges.txt (byte-level BPE and
XLM's BPE), and SentencePiece models with the ids of fairseq, T5 or DeBERTa.
ByT5 has no tokenizer files.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from xlflax.data.tokenizers import (
  base_vocabulary,
  fairseq_vocabulary,
  huggingface_vocabulary,
  imported_vocabulary,
  tokenizer_errors,
  xlm_vocabulary,
)
from xlflax.interop import safe_paths
from xlflax.interop.huggingface.tokenizers import checkpoint_languages
from xlflax.utils import errors

# Files that are copied, so that an export contains the imported files.
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
_WORDPIECE = dict(
  pad='[PAD]', bos='[CLS]', eos='[SEP]', unk='[UNK]', mask='[MASK]'
)
_ROBERTA = dict(pad='<pad>', bos='<s>', eos='</s>', unk='<unk>', mask='<mask>')
_XLM = dict(pad='<pad>', bos='<s>', eos='</s>', unk='<unk>', mask='<special1>')
# T5 has no tokens for the start of a text and for masks. Texts start without a
# special token, and sentinels replace masked spans.
_T5 = dict(
  pad='<pad>', bos='<pad>', eos='</s>', unk='<unk>', mask='<extra_id_0>'
)
_DEFAULT_ROLES = {
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
# Tokenizer classes that use vocab.txt.
_WORDPIECE_CLASSES = (
  'Bert',
  'DistilBert',
  'Electra',
  'MobileBert',
  'ConvBert',
  'Funnel',
  'MPNet',
  'Splinter',
)
# Tokenizer classes that use vocab.json and merges.txt.
_BYTE_LEVEL_CLASSES = (
  'Roberta',
  'Bart',
  'GPT2',
  'Longformer',
  'LED',
  'Deberta',
  'Blenderbot',
  'ModernBert',
)
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
  """Reads a folder's tokenizer as a vocabulary.

  Args:
    folder: Folder written by `save_pretrained`.
    model_type: Model type in the folder's `config.json`.
    size: Number of rows of the embedding table. None if the table has no more
      rows than the tokenizer has tokens.
    languages: Codes of the languages to which ids are assigned. If the
      tokenizer has language symbols, only these languages are kept, and None
      keeps all.

  Raises:
    VocabularyError: If the tokenizer files do not exist or cannot be read.
  """
  safe_paths.check_no_links(folder, FILES)
  settings = _read_settings(folder)
  all_symbols = checkpoint_languages.read_language_symbols(
    folder, settings, model_type
  )
  languages, symbols = checkpoint_languages.choose_languages(
    all_symbols, languages
  )
  layout = imported_vocabulary.Layout(
    _roles(settings, model_type), languages, size, symbols
  )
  if (folder / huggingface_vocabulary.FILE).is_file():
    content = (folder / huggingface_vocabulary.FILE).read_bytes()
    return huggingface_vocabulary.TokenizersVocabulary(content, layout)
  if model_type == 'm2m_100':
    raise errors.VocabularyError(
      'M2M-100 and NLLB models can only be imported with tokenizer.json, '
      'because the ids in their SentencePiece models differ from the rows of '
      'the embedding table',
      got=', '.join(tokenizer_file_names(folder)) or 'no tokenizer',
      expected=huggingface_vocabulary.FILE,
      where=str(folder),
      fix='Save the tokenizer with transformers, which writes tokenizer.json.',
    )
  for name, id_layout in (
    (_FAIRSEQ_MODEL, fairseq_vocabulary.IdLayout.FAIRSEQ),
    (_T5_MODEL, fairseq_vocabulary.IdLayout.T5),
    (_DEBERTA_MODEL, fairseq_vocabulary.IdLayout.DEBERTA),
  ):
    if (folder / name).is_file():
      return fairseq_vocabulary.MovedSentencePieceVocabulary(
        (folder / name).read_bytes(),
        layout,
        id_layout=id_layout,
        extra_ids=settings.get('extra_ids', 100) if name == _T5_MODEL else 0,
        codes=all_symbols if name == _FAIRSEQ_MODEL else (),
      )
  if model_type == 'xlm' and (folder / xlm_vocabulary.MERGES).is_file():
    return xlm_vocabulary.XLMVocabulary(
      {
        name: _read(folder / name)
        for name in (xlm_vocabulary.VOCABULARY, xlm_vocabulary.MERGES)
      },
      layout,
      lower=settings.get('do_lowercase_and_remove_accent', True),
    )
  tokenizer = _build_tokenizer(folder, settings)
  if tokenizer is None:
    raise errors.VocabularyError(
      'The folder must contain one of the tokenizer files tokenizer.json, '
      f'vocab.txt, vocab.json with merges.txt, {_FAIRSEQ_MODEL}, {_T5_MODEL} '
      f'or {_DEBERTA_MODEL}',
      fix='Save the tokenizer files in the folder, or pass an xlflax '
      'vocabulary with --vocabulary=DIR.',
      where=str(folder),
    )
  return huggingface_vocabulary.TokenizersVocabulary(
    tokenizer.to_str().encode(), layout
  )


def tokenizer_file_names(folder: pathlib.Path) -> list[str]:
  """Returns the names of the tokenizer files in a folder."""
  return [name for name in FILES if (folder / name).is_file()]


def _read(path: pathlib.Path) -> bytes:
  try:
    return path.read_bytes()
  except OSError as error:
    raise errors.VocabularyError(
      'The tokenizer file cannot be read', got=error.strerror, where=str(path)
    ) from error


def _read_settings(folder: pathlib.Path) -> dict[str, Any]:
  """Reads the settings of the tokenizer from all files that contain them."""
  settings: dict[str, Any] = {}
  for name in (
    'config.json',
    'special_tokens_map.json',
    'tokenizer_config.json',
  ):
    try:
      text = (folder / name).read_text(encoding='utf-8')
      settings |= json.loads(text)
      if name == 'config.json':
        # All other settings in this file belong to the model.
        settings = {_CLASS: settings.get(_CLASS)}
    except FileNotFoundError:
      continue
    except (OSError, ValueError, TypeError, RecursionError) as error:
      raise errors.VocabularyError(
        f'The file {name} cannot be read',
        got=str(error),
        where=str(folder / name),
      ) from error
  return settings


def _roles(settings: dict[str, Any], model_type: str) -> dict[str, str]:
  """Returns the token for each role, either configured or the default."""
  defaults = _DEFAULT_ROLES.get(model_type, _ROBERTA)
  is_t5 = model_type in ('t5', 'mt5', 'umt5')
  roles = {}
  for role, keys in _KEYS.items():
    if model_type == 'xlm' and role == 'bos':
      # XLM configures </s> as the class token.
      keys = keys[::-1]
    configured = [
      _token_text(settings[key]) for key in keys if settings.get(key)
    ]
    is_configurable = not is_t5 or role in ('pad', 'eos', 'unk')
    if configured and is_configurable:
      roles[role] = configured[0]
    else:
      roles[role] = defaults[role]
    if not configured and role == 'unk' and model_type == 'eurobert':
      # A byte-level tokenizer has no unknown token.
      roles[role] = roles['pad']
    if role == 'bos' and not is_configurable:
      # T5 uses padding as the start token.
      roles[role] = roles['pad']
  return roles


def _token_text(token) -> str:
  """Returns the text of a special token in a settings file.

  Raises:
    VocabularyError: If the token's text is missing.
  """
  text = token.get('content') if isinstance(token, dict) else token
  if not isinstance(text, str):
    raise errors.VocabularyError(
      'Each special token in the tokenizer settings must be a string',
      got=str(token)[:300],
    )
  return text


def _build_tokenizer(
  folder: pathlib.Path, settings
) -> tokenizers.Tokenizer | None:
  """Builds a tokenizer from the files of a format older than tokenizer.json.

  Returns None if there are no such files.
  """
  with tokenizer_errors.converting_tokenizer_errors(
    'The tokenizer files cannot be read'
  ):
    if (folder / 'vocab.txt').is_file():
      _check_class(settings, _WORDPIECE_CLASSES)
      return _build_wordpiece(str(folder / 'vocab.txt'), settings)
    if (folder / 'vocab.json').is_file() and (folder / 'merges.txt').is_file():
      _check_class(settings, _BYTE_LEVEL_CLASSES)
      return _build_byte_level_bpe(folder, settings)
    if settings.get('tokenizer_class') == 'ByT5Tokenizer':
      return _build_byt5(settings)
  return None


def _check_class(settings, supported: Sequence[str]) -> None:
  """Checks that the tokenizer class uses the expected segmentation rules.

  Raises:
    VocabularyError: If the tokenizer class is not supported.
  """
  class_name = settings.get('tokenizer_class') or ''
  class_stem = class_name.removesuffix('Fast').removesuffix('Tokenizer')
  # Japanese tokenizers have different word tokenizers.
  word_tokenizer = settings.get('word_tokenizer_type', 'basic')
  if (
    class_stem not in ('', 'PreTrained', *supported)
    or word_tokenizer != 'basic'
  ):
    supported_classes = ', '.join(supported)
    raise errors.VocabularyError(
      f'Without {huggingface_vocabulary.FILE}, a tokenizer can only be '
      f'imported if its tokenizer_class is one of {supported_classes}, and '
      "its word_tokenizer_type is 'basic'",
      got=f'tokenizer_class={class_name!r}, '
      f'word_tokenizer_type={word_tokenizer!r}',
      fix='Pass an xlflax vocabulary with --vocabulary=DIR.',
    )


def _build_byt5(settings) -> tokenizers.Tokenizer:
  """Builds the tokenizer of ByT5 (Xue et al., 2022).

  Its tokens are three special tokens, the bytes and the sentinels.
  """
  special = [_T5[role] for role in ('pad', 'eos', 'unk')]
  # A printable byte is represented by itself. The other bytes are represented,
  # in order, by characters beyond 255.
  letters = sorted(pre_tokenizers.ByteLevel.alphabet())
  printable_bytes = [ord(letter) for letter in letters if ord(letter) < 256]
  other_bytes = sorted({*range(256)} - {*map(ord, letters)})
  tokens = {
    letter: 3 + byte
    for letter, byte in zip(letters, printable_bytes + other_bytes, strict=True)
  }
  tokens |= {token: i for i, token in enumerate(special)}
  tokenizer = tokenizers.Tokenizer(models.BPE(tokens, []))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
    add_prefix_space=False, use_regex=False
  )
  tokenizer.decoder = decoders.ByteLevel()
  num_sentinels = settings.get('extra_ids') or 125
  sentinels = [f'<extra_id_{i}>' for i in range(num_sentinels)]
  tokenizer.add_special_tokens([*special, *sentinels])
  tokenizer.post_processor = processors.TemplateProcessing(
    single='$A </s>', pair='$A </s> $B </s>', special_tokens=[('</s>', 1)]
  )
  return tokenizer


def _build_wordpiece(path: str, settings) -> tokenizers.Tokenizer:
  """Builds a WordPiece tokenizer from vocab.txt."""
  unk_token = _token_text(settings.get('unk_token', _WORDPIECE['unk']))
  tokenizer = tokenizers.Tokenizer(
    models.WordPiece.from_file(path, unk_token=unk_token)
  )
  tokenizer.normalizer = normalizers.BertNormalizer(
    clean_text=True,
    handle_chinese_chars=settings.get('tokenize_chinese_chars', True),
    strip_accents=settings.get('strip_accents'),
    lowercase=settings.get('do_lower_case', True),
  )
  tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  tokenizer.decoder = decoders.WordPiece(prefix='##')
  special = {
    key: _token_text(settings.get(f'{key}_token', f'[{key.upper()}]'))
    for key in ('pad', 'cls', 'sep', 'unk', 'mask')
  }
  tokenizer.add_special_tokens(list(special.values()))
  tokenizer.post_processor = processors.BertProcessing(
    _with_id(tokenizer, special['sep']), _with_id(tokenizer, special['cls'])
  )
  return tokenizer


def _with_id(tokenizer: tokenizers.Tokenizer, token: str) -> tuple[str, int]:
  """Returns a token of the tokenizer and its id."""
  token_id = tokenizer.token_to_id(token)
  assert token_id is not None
  return token, token_id


def _build_byte_level_bpe(
  folder: pathlib.Path, settings
) -> tokenizers.Tokenizer:
  """Builds a byte-level BPE tokenizer from vocab.json and merges.txt."""
  imported_vocabulary.check_ids(
    json.loads((folder / 'vocab.json').read_bytes()).values()
  )
  tokenizer = tokenizers.Tokenizer(
    models.BPE.from_file(str(folder / 'vocab.json'), str(folder / 'merges.txt'))
  )
  add_prefix_space = settings.get('add_prefix_space', False)
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
    add_prefix_space=add_prefix_space
  )
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.add_special_tokens(list(_ROBERTA.values()))
  tokenizer.post_processor = processors.RobertaProcessing(
    _with_id(tokenizer, _ROBERTA['eos']),
    _with_id(tokenizer, _ROBERTA['bos']),
    add_prefix_space=add_prefix_space,
  )
  return tokenizer

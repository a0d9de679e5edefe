"""Contents of generation_config.json, which configures text generation.

If the decoder starts with the target language's symbol, users must pass the
language to `generate`. Alternatively, the export can store the symbols for one
translation direction in the folder.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.evaluation import translation_options
from xlflax.interop.huggingface.tokenizers import post_processor
from xlflax.objectives.pretraining.seq2seq import SourceSymbols
from xlflax.objectives.teacher_forcing import DecoderStart
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

FILE = 'generation_config.json'
# Key of huggingface.json with the settings of the imported folder.
KEY = 'generation'
_START = 'decoder_start_token_id'
_FORCED = 'forced_bos_token_id'


@dataclasses.dataclass(frozen=True)
class Generation:
  """Text generation settings of an exported Hugging Face folder.

  Attributes:
    settings: Contents of generation_config.json. If empty, the file is not
      written.
    source: Special-token template of source texts in training, such as ('$A',
      '2', '9') for the end symbol and the language symbol. If empty, the
      tokenizer's template is used.
    notes: Notes to show to the user.
  """

  settings: Mapping[str, Any]
  source: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()


def build_generation(
  run: saved_run.SavedRun,
  options: Mapping[str, Any],
  record: Mapping[str, Any],
  direction: Sequence[str] | None,
) -> Generation:
  """Returns the text generation settings for an encoder-decoder.

  Args:
    run: Run to export.
    options: Options from the model's `config.json`.
    record: Record of the published model from which the run was initialized, or
      {} if there is none.
    direction: Codes of the source and target languages. If None, the
      configuration does not specify a translation direction.

  Raises:
    VocabularyError: If the vocabulary has no language symbol for one of the
      languages.
    ConfigError: If a translation direction is passed for a model that was
      imported and not trained.
  """
  recorded_settings = dict(record.get(KEY) or {})
  defaults = {
    name: options[name]
    for name in ('eos_token_id', 'pad_token_id', _START, _FORCED)
    if options.get(name) is not None
  }
  try:
    start, source = translation_options.decoding_symbols(
      translation_options.TranslationOptions(), run.objectives
    )
  except errors.ConfigError:  # The model was imported and not trained.
    if direction:
      raise
    return Generation(recorded_settings or defaults)

  spec = run.vocabulary.spec
  ids = [_language_symbol(run.vocabulary, code) for code in direction or ()]
  settings: dict[str, Any] = defaults | {
    'max_length': run.model.config.max_position_embeddings
    + 1,  # Includes the start symbol.
    'suppress_tokens': sorted({*spec.special_ids} - {spec.eos_id, spec.unk_id}),
  }
  starts = {
    DecoderStart.LANGUAGE: ids[1] if ids else None,
    DecoderStart.BOS: spec.bos_id,
    DecoderStart.PAD: spec.pad_id,
    DecoderStart.EOS: spec.eos_id,
  }
  # The recorded forced symbol belongs to the model that the run was
  # initialized from.
  settings = (
    recorded_settings | settings | {_START: starts[start], _FORCED: None}
  )
  settings = {
    name: value for name, value in settings.items() if value is not None
  }

  language_suffix = source is SourceSymbols.LANGUAGE_SUFFIX
  notes = []
  if not ids and (language_suffix or start is DecoderStart.LANGUAGE):
    hint = (
      'The folder does not specify the languages. Either export with '
      '--source_lang and --target_lang, or pass the symbol of the target '
      'language to generate() as decoder_start_token_id'
    )
    if language_suffix:
      hint += ' and append the symbol of the source language to source texts'
    notes.append(f'{hint}.')

  template: tuple[str, ...] = ()
  if ids or not language_suffix:
    prefix = []
    if not language_suffix and spec.bos_id != spec.pad_id:
      prefix = [spec.bos_id]
    suffix = [spec.eos_id]
    if language_suffix:
      suffix += ids[:1]
    template = (*map(str, prefix), '$A', *map(str, suffix))
  return Generation(settings, template, tuple(notes))


def _language_symbol(vocabulary, code: str) -> int:
  """Returns the id of a language's symbol.

  Raises:
    VocabularyError: If the vocabulary has no symbol for the language.
  """
  spec = vocabulary.spec
  index = vocabulary.language_id(code)
  if index >= len(spec.language_symbol_ids):
    raise errors.VocabularyError(
      'The languages of --source_lang and --target_lang must have a language '
      'symbol such as <lang:en> in the vocabulary',
      got=code,
    )
  return spec.language_symbol_ids[index]


def set_source_template(folder: pathlib.Path, single: Sequence[str]) -> bool:
  """Sets the tokenizer's special-token template for source texts.

  Args:
    folder: Folder with the tokenizer files.
    single: Special-token template of a single text.

  Returns:
    Whether the template of the tokenizer was different.
  """
  tokenizer = post_processor.load_without_truncation(folder)
  ids = [int(symbol) for symbol in single if symbol != '$A']
  if tokenizer is None or tokenizer.encode('').ids == ids:
    return False
  index = single.index('$A') + 1
  pair_template = [*single[:index], '$B', *single[index:]]
  post_processor.set_template(
    folder, tokenizer, single=[*single], pair=pair_template
  )
  return True

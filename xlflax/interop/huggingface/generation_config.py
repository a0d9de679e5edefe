"""generation_config.json: how transformers' `generate` begins and ends.

A decoder that begins with the symbol of the target language must be told the
language; one direction can be written into the folder.
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
KEY = 'generation'  # of huggingface.json: what the imported folder had
_START = 'decoder_start_token_id'
_FORCED = 'forced_bos_token_id'


@dataclasses.dataclass(frozen=True)
class Generation:
  """What a folder says of generation.

  Attributes:
    settings: generation_config.json; {} for none.
    source: template of a source text as in training, such as ('$A', '2', '9')
      for the end and its language's symbol; () is the tokenizer's own.
    notes: what the reader should know.
  """

  settings: Mapping[str, Any]
  source: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()


def of_run(
  run: saved_run.SavedRun,
  options: Mapping[str, Any],
  record: Mapping[str, Any],
  direction: Sequence[str] | None,
) -> Generation:
  """Settings of an encoder-decoder.

  Args:
    run: the model directory.
    options: config.json.
    record: of the published model that the run starts from, or {}.
    direction: codes of the source's and the target's language, or None.

  Raises:
    VocabularyError: it lacks a language of the direction.
    ConfigError: there is a direction of a model that was not trained.
  """
  recorded_settings = dict(record.get(KEY) or {})
  usual = {
    name: options[name]
    for name in ('eos_token_id', 'pad_token_id', _START, _FORCED)
    if options.get(name) is not None
  }
  try:
    start, source = translation_options.decoding_symbols(
      translation_options.TranslationOptions(), run.objectives
    )
  except errors.ConfigError:  # nothing was trained here
    if direction:
      raise
    return Generation(recorded_settings or usual)
  spec = run.vocabulary.spec
  ids = [_symbol(run.vocabulary, code) for code in direction or ()]
  settings: dict[str, Any] = usual | {
    'max_length': run.model.config.max_length + 1,  # with the start
    'suppress_tokens': sorted({*spec.special_ids} - {spec.eos_id, spec.unk_id}),
  }
  starts = {
    DecoderStart.LANGUAGE: ids[1] if ids else None,
    DecoderStart.BOS: spec.bos_id,
    DecoderStart.PAD: spec.pad_id,
    DecoderStart.EOS: spec.eos_id,
  }
  # Symbols forced after the start are those of the model it began with.
  settings = (
    recorded_settings | settings | {_START: starts[start], _FORCED: None}
  )
  settings = {name: v for name, v in settings.items() if v is not None}
  follows = source is SourceSymbols.LANGUAGE_LAST
  notes = []
  if not ids and (follows or start is DecoderStart.LANGUAGE):
    notes.append(
      'the languages are not written: give generate() the id of the target '
      "language's symbol as decoder_start_token_id"
      + (', and end source texts with that of theirs' if follows else '')
      + ', or pass --source_lang and --target_lang'
    )
  ends = [spec.eos_id, *ids[:1]] if follows else [spec.eos_id]
  begin = [] if follows or spec.bos_id == spec.pad_id else [spec.bos_id]
  frame = (*map(str, begin), '$A', *map(str, ends))
  return Generation(settings, frame if ids or not follows else (), tuple(notes))


def _symbol(vocabulary, code: str) -> int:
  spec = vocabulary.spec
  index = vocabulary.language_id(code)
  if index >= len(spec.language_symbol_ids):
    raise errors.VocabularyError(
      'The vocabulary has no symbol for the language',
      got=code,
      expected='one <lang:xx> per language',
      where='--source_lang, --target_lang',
    )
  return spec.language_symbol_ids[index]


def frame_source(folder: pathlib.Path, single: Sequence[str]) -> bool:
  """Has the tokenizer frame a text so; returns whether it did otherwise."""
  tokenizer = post_processor.load_without_truncation(folder)
  ids = [int(part) for part in single if part != '$A']
  if tokenizer is None or tokenizer.encode('').ids == ids:
    return False
  after = single.index('$A') + 1
  pair_template = [*single[:after], '$B', *single[after:]]
  post_processor.set_template(
    folder, tokenizer, single=[*single], pair=pair_template
  )
  return True

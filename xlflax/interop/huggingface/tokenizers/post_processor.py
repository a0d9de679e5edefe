"""The special symbols that a written tokenizer puts around texts and pairs.

They must be those of the rows that the model was trained with, whatever the
tokenizer of the model that training began with did.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import processors

from xlflax.data import batch_keys
from xlflax.data.dataset_config import Layout, Separator
from xlflax.data.supervised.featurizers import featurizer
from xlflax.data.tokenizers import base_vocabulary
from xlflax.interop.huggingface import config_json
from xlflax.storage import paths
from xlflax.training.checkpointing import (
  config_serialization,
  objective_config,
  run_directory,
)

FILE = 'tokenizer.json'
_TYPES = ('token_type_ids',)  # what models with several of them are given


def separator_of(model_dir: pathlib.Path) -> Separator | None:
  """What a run's rows have between two texts; None if it read no pairs.

  The inputs of heads count before the streams of pretraining.
  """
  inputs = objective_config.read_inputs(model_dir).values()
  values = {one['separator'] for one in inputs if 'separator' in one}
  trainer = run_directory.read_trainer(model_dir)
  streams = trainer.get(config_serialization.FIELDS, {}).get('streams', [])
  for fields in (
    () if values else (one[config_serialization.FIELDS] for one in streams)
  ):
    if 'rows' not in fields and fields.get('layout') == Layout.PAIRS.value:
      values.add(fields['pairs'][config_serialization.FIELDS]['separator'])
  return Separator(values.pop()) if len(values) == 1 else None


def pair_template(
  vocabulary: base_vocabulary.Vocabulary, separator: Separator, *, types: int
) -> list[tuple[int, int]]:
  """(id, token type) of each symbol around a pair of empty texts."""
  nothing = np.zeros(0, np.int32)
  row = featurizer.text_row(
    [nothing] * 2, (0, 0), vocabulary.spec, separator=separator
  )
  sides = np.minimum(row[batch_keys.SIDE_IDS], max(types, 1) - 1)
  return list(
    zip(row[batch_keys.TOKEN_IDS].tolist(), sides.tolist(), strict=True)
  )


def load_without_truncation(
  folder: pathlib.Path,
) -> tokenizers.Tokenizer | None:
  """A folder's tokenizer.json as texts of any length need it, or None."""
  if not (folder / FILE).exists():
    return None
  tokenizer = tokenizers.Tokenizer.from_file(str(folder / FILE))
  tokenizer.no_truncation()  # some files fill rows up, or cut them
  tokenizer.no_padding()
  return tokenizer


def match_run_template(
  folder: pathlib.Path,
  vocabulary: base_vocabulary.Vocabulary,
  separator: Separator,
  *,
  types: int,
) -> bool:
  """Makes the tokenizer in a folder frame pairs as the run's rows are.

  Args:
    folder: with tokenizer.json; nothing is done without it.
    vocabulary: the run's.
    separator: what its rows have between two texts.
    types: token types of the model, of which the second text has the second.

  Returns:
    Whether the tokenizer was changed.
  """
  tokenizer = load_without_truncation(folder)
  if tokenizer is None:
    return False
  frame = pair_template(vocabulary, separator, types=types)
  encoding = tokenizer.encode('', '')
  same = encoding.ids == [index for index, _ in frame]
  if same and (types < 2 or encoding.type_ids == [side for _, side in frame]):
    return False
  (first, _), *other_symbols = frame
  inside = [f'{i}:{side}' for i, side in other_symbols]
  last = '$B:1' if types > 1 else '$B:0'
  set_template(
    folder,
    tokenizer,
    single=[f'{first}', '$A', f'{other_symbols[0][0]}'],
    pair=[f'{first}', '$A', *inside[:-1], last, inside[-1]],
    names=('input_ids', *_TYPES[: types - 1], 'attention_mask'),
  )
  return True


def set_template(
  folder: pathlib.Path,
  made: tokenizers.Tokenizer,
  *,
  single: list[str],
  pair: list[str],
  names: Sequence[str] = ('input_ids', 'attention_mask'),
) -> None:
  """Writes the tokenizer with other symbols around texts, for transformers.

  Its classes of single models have symbols of their own, so it becomes one of
  the general class, which takes the file as it is. Symbols are given by their
  ids, such as '2' or, for the second type of token, '2:1'.
  """
  symbols = {name.partition(':')[0] for name in (*single, *pair)}
  made.post_processor = processors.TemplateProcessing(
    single=single,
    pair=pair,
    special_tokens=[  # by number: names may have a colon
      {'id': number, 'ids': [i], 'tokens': [made.id_to_token(i)]}
      for number in sorted(symbols - {'$A', '$B'})
      for i in [int(number)]
    ],
  )
  made.save(str(folder / FILE), pretty=False)
  path = folder / 'tokenizer_config.json'
  settings: dict[str, Any] = (
    config_json.read_json(path) if path.exists() else {}
  )
  settings['tokenizer_class'] = 'PreTrainedTokenizerFast'
  settings['model_input_names'] = [*names]
  paths.write_atomically(path, json.dumps(settings, indent=2) + '\n')

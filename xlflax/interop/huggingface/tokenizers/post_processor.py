"""Special-token templates for exported tokenizers.

The special tokens around texts and text pairs must be the ones with which the
model was trained. The tokenizer of the model from which training was
initialized can use different special tokens.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import processors

from xlflax.data import batch_keys
from xlflax.data.dataset_config import ExampleLayout, SpecialTokenTemplate
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
# Inputs of models with several token types.
_TYPE_INPUTS = ('token_type_ids',)


def read_separator(model_dir: pathlib.Path) -> SpecialTokenTemplate | None:
  """Returns the separator that a run inserted between the texts of a pair.

  The input settings of heads take precedence over the datasets of pretraining.

  Args:
    model_dir: Model directory of the run.

  Returns:
    The separator, or None if the run used no text pairs or several separators.
  """
  inputs = objective_config.read_inputs(model_dir).values()
  separators = {
    settings['separator'] for settings in inputs if 'separator' in settings
  }
  if not separators:
    trainer = run_directory.read_trainer(model_dir)
    datasets = trainer.get(config_serialization.FIELDS, {}).get('datasets', [])
    for dataset in datasets:
      fields = dataset[config_serialization.FIELDS]
      if (
        'rows' not in fields
        and fields.get('layout') == ExampleLayout.PAIRS.value
      ):
        pairs = fields['pairs'][config_serialization.FIELDS]
        separators.add(pairs['separator'])
  return (
    SpecialTokenTemplate(separators.pop()) if len(separators) == 1 else None
  )


def pair_template(
  vocabulary: base_vocabulary.Vocabulary,
  separator: SpecialTokenTemplate,
  *,
  num_types: int,
) -> list[tuple[int, int]]:
  """Returns the special tokens around and between the texts of a pair.

  Args:
    vocabulary: Vocabulary of the run.
    separator: Special tokens that separate the two texts of a pair.
    num_types: Number of token types that the model distinguishes.

  Returns:
    The id and the token type of each special token.
  """
  empty_text = np.zeros(0, np.int32)
  example = featurizer.text_row(
    [empty_text] * 2, (0, 0), vocabulary.spec, separator=separator
  )
  token_ids = example[batch_keys.TOKEN_IDS]
  types = np.minimum(example[batch_keys.SIDE_IDS], max(num_types, 1) - 1)
  return list(zip(token_ids.tolist(), types.tolist(), strict=True))


def load_without_truncation(
  folder: pathlib.Path,
) -> tokenizers.Tokenizer | None:
  """Loads `tokenizer.json` from a folder and disables truncation and padding.

  Returns None if the file does not exist.
  """
  if not (folder / FILE).exists():
    return None
  tokenizer = tokenizers.Tokenizer.from_file(str(folder / FILE))
  # Some files enable truncation or padding.
  tokenizer.no_truncation()
  tokenizer.no_padding()
  return tokenizer


def match_run_template(
  folder: pathlib.Path,
  vocabulary: base_vocabulary.Vocabulary,
  separator: SpecialTokenTemplate,
  *,
  num_types: int,
) -> bool:
  """Changes a tokenizer's special-token template to that of the run.

  Args:
    folder: Folder with tokenizer.json. Without this file, the function does
      nothing.
    vocabulary: Vocabulary of the run.
    separator: Special tokens that the run uses to separate the two texts of a
      pair.
    num_types: Number of token types that the model distinguishes. If it is at
      least 2, the second text has token type 1.

  Returns:
    Whether the tokenizer was changed.
  """
  tokenizer = load_without_truncation(folder)
  if tokenizer is None:
    return False
  template = pair_template(vocabulary, separator, num_types=num_types)
  encoding = tokenizer.encode('', '')
  has_same_ids = encoding.ids == [index for index, _ in template]
  has_same_types = num_types < 2 or encoding.type_ids == [
    token_type for _, token_type in template
  ]
  if has_same_ids and has_same_types:
    return False

  (first_id, _), *other_symbols = template
  symbols = [f'{index}:{token_type}' for index, token_type in other_symbols]
  second_text = '$B:1' if num_types > 1 else '$B:0'
  set_template(
    folder,
    tokenizer,
    single=[f'{first_id}', '$A', f'{other_symbols[0][0]}'],
    pair=[f'{first_id}', '$A', *symbols[:-1], second_text, symbols[-1]],
    names=('input_ids', *_TYPE_INPUTS[: num_types - 1], 'attention_mask'),
  )
  return True


def set_template(
  folder: pathlib.Path,
  tokenizer: tokenizers.Tokenizer,
  *,
  single: list[str],
  pair: list[str],
  names: Sequence[str] = ('input_ids', 'attention_mask'),
) -> None:
  """Writes a tokenizer with a different special-token template.

  The tokenizer classes of specific models in transformers have fixed templates.
  The written tokenizer therefore has the general class
  `PreTrainedTokenizerFast`, which uses the template in the file.

  Args:
    folder: Folder with the tokenizer files.
    tokenizer: Tokenizer to write. Its post-processor is replaced by the
      template.
    single: Template for a single text, such as ['1', '$A', '2']. Special tokens
      are specified by their ids, and a suffix sets the token type, as in '2:1'.
    pair: Template for a text pair, in which $A and $B stand for the texts.
    names: Names of the model inputs that the tokenizer returns by default.
  """
  symbols = {name.partition(':')[0] for name in (*single, *pair)}
  # Special tokens are named by their ids, because tokens can contain a colon.
  special_tokens = [
    {
      'id': symbol,
      'ids': [int(symbol)],
      'tokens': [tokenizer.id_to_token(int(symbol))],
    }
    for symbol in sorted(symbols - {'$A', '$B'})
  ]
  tokenizer.post_processor = processors.TemplateProcessing(
    single=single, pair=pair, special_tokens=special_tokens
  )
  tokenizer.save(str(folder / FILE), pretty=False)

  path = folder / 'tokenizer_config.json'
  settings: dict[str, Any] = {}
  if path.exists():
    settings = config_json.read_json(path)
  settings['tokenizer_class'] = 'PreTrainedTokenizerFast'
  settings['model_input_names'] = [*names]
  paths.write_atomically(path, json.dumps(settings, indent=2) + '\n')

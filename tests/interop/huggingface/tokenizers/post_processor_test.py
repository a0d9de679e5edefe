"""Special-token templates of exported tokenizers."""

import json

import pytest
import transformers

from tests.errors import assert_mentions
from tests.interop.huggingface import reference_tokenizers
from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax.data import dataset_config
from xlflax.data.dataset_config import SpecialTokenTemplate
from xlflax.data.supervised.featurizers import (
  classification_featurizer,
  featurizer,
  tagging_featurizer,
)
from xlflax.interop.huggingface import folder_writer, huggingface_export
from xlflax.interop.huggingface.tokenizers import (
  post_processor,
  tokenizer_reader,
)
from xlflax.interop.huggingface.verification import tokenizer_checks
from xlflax.training import run_header
from xlflax.training.checkpointing import objective_config, run_directory

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_PAIR = ('the dog', 'the cat sleeps')


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
  """Folder of a BERT tokenizer and its imported vocabulary."""
  folder = tmp_path_factory.mktemp('bert')
  reference_tokenizers.bert(folder, do_lower_case=False).save_pretrained(folder)
  return folder, tokenizer_reader.read_tokenizer(
    folder, model_type='bert', size=None, languages=('en',)
  )


def _row(vocabulary, separator):
  sides = [vocabulary.encode(text) for text in _PAIR]
  return featurizer.text_row(
    sides, (0, 0), vocabulary.spec, separator=separator
  )


@pytest.mark.parametrize('separator', SpecialTokenTemplate)
def test_exported_template_equals_that_of_the_run(bert, tmp_path, separator):
  folder, vocabulary = bert
  for path in folder.iterdir():
    (tmp_path / path.name).write_bytes(path.read_bytes())
  changed = post_processor.match_run_template(
    tmp_path, vocabulary, separator, num_types=2
  )
  assert changed == (separator is not SpecialTokenTemplate.BERT)
  encoded = transformers.AutoTokenizer.from_pretrained(tmp_path)(*_PAIR)
  row = _row(vocabulary, separator)
  assert encoded['input_ids'] == row['token_ids'].tolist()
  assert encoded['token_type_ids'] == row['side_ids'].tolist()
  single = transformers.AutoTokenizer.from_pretrained(tmp_path)(_PAIR[0])
  before = transformers.AutoTokenizer.from_pretrained(folder)(_PAIR[0])
  assert single['input_ids'] == before['input_ids']


def test_separators_that_differ_from_the_tokenizer_are_reported(bert, caplog):
  _, vocabulary = bert
  options = dict(labels=('a', 'b'))
  fitting = classification_featurizer.ClassificationFeaturizer(
    separator='bert', **options
  )
  featurizer.warn_of_template_mismatch(fitting, vocabulary)
  featurizer.warn_of_template_mismatch(
    tagging_featurizer.TaggingFeaturizer(**options), vocabulary
  )
  assert not caplog.text
  featurizer.warn_of_template_mismatch(
    classification_featurizer.ClassificationFeaturizer(**options), vocabulary
  )
  assert_mentions(caplog.text, 'bert', 'SEPARATOR=')


@pytest.mark.parametrize(
  ('layout', 'separator', 'num_warnings'),
  [('pairs', 'xlmr', 1), ('pairs', 'bert', 0), ('dual', 'xlmr', 0)],
)
def test_separators_of_parallel_datasets_are_reported(
  bert, layout, separator, num_warnings
):
  _, vocabulary = bert
  dataset = dataset_config.DatasetConfig(
    name='tlm',
    mixture='corpus.parallel',
    layout=layout,
    length=32,
    batch_size=4,
    pairs=dataset_config.PairOptions(separator=separator),
  )
  messages = run_header.pair_template_warnings(vocabulary, [dataset])
  assert len(messages) == num_warnings
  for message in messages:
    assert_mentions(message, 'tlm', 'xlmr', 'bert', 'pairs.separator')


def _write_trainer(directory, *datasets):
  """Writes the trainer file of a run with the given datasets."""
  dataset_configs = [
    {'class': 'dataset_config', 'fields': fields} for fields in datasets
  ]
  run_directory.write_run_file(
    directory,
    run_directory.TRAINER,
    {'class': 'trainer', 'fields': {'datasets': dataset_configs}},
  )


def test_read_separator(tmp_path):
  """The separator of the heads takes precedence over that of pretraining."""
  pairs = {
    'layout': 'pairs',
    'pairs': {'class': 'pair_options', 'fields': {'separator': 'xlm'}},
  }
  assert post_processor.read_separator(tmp_path) is None
  _write_trainer(tmp_path, pairs)
  assert post_processor.read_separator(tmp_path) is SpecialTokenTemplate.XLM
  objective_config.write_objectives(
    tmp_path, [], {'tagger': {'length': 9}, 'pairs': {'separator': 'bert'}}
  )
  assert post_processor.read_separator(tmp_path) is SpecialTokenTemplate.BERT
  objective_config.write_objectives(
    tmp_path, [], {'one': {'separator': 'xlmr'}, 'two': {'separator': 'bert'}}
  )
  assert post_processor.read_separator(tmp_path) is None


def test_token_types_of_an_exported_vocabulary(run_of, vocabulary, tmp_path):
  directory, *_ = run_of(type_vocab_size=2)
  folder_writer.write_folder(
    huggingface_export.check_export(directory), tmp_path / 'out'
  )
  encoded = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')(*_PAIR)
  row = _row(vocabulary, SpecialTokenTemplate.XLMR)
  assert encoded['input_ids'] == row['token_ids'].tolist()
  assert encoded['token_type_ids'] == row['side_ids'].tolist()
  assert (
    json.loads((tmp_path / 'out/config.json').read_text())['type_vocab_size']
    == 2
  )


def test_padding_and_truncation_of_the_file_are_ignored(bert, tmp_path):
  """Some Sentence-Transformers folders contain such files."""
  folder, vocabulary = bert
  tokenizer = post_processor.load_without_truncation(folder)
  tokenizer.enable_padding(length=20)
  tokenizer.enable_truncation(8)
  tokenizer.save(str(tmp_path / 'tokenizer.json'))
  assert (
    len(post_processor.load_without_truncation(tmp_path).encode(_PAIR[0]).ids)
    < 20
  )
  tokenizer_checks.check_tokenizer(vocabulary, tmp_path)
  assert not post_processor.match_run_template(
    tmp_path, vocabulary, SpecialTokenTemplate.BERT, num_types=2
  )


def test_export_with_reset_positions_adds_a_note(run_of, tmp_path):
  """Exported models cannot restart the positions in the second text."""
  directory, *_ = run_of()
  notes = {}
  for positions in ('continuous', 'reset'):
    task = huggingface_export.check_export(directory).task.value
    inputs = {task: {'separator': 'xlmr', 'positions': positions}}
    objective_config.write_objectives(directory, [], inputs)
    notes[positions] = folder_writer.write_folder(
      huggingface_export.check_export(directory), tmp_path / positions
    )
  assert len(notes['reset']) == len(notes['continuous']) + 1

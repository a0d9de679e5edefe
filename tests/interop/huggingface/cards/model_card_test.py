"""Model cards, read with the ModelCard class of huggingface_hub."""

import dataclasses
import json
import shutil

import huggingface_hub
import pytest

from tests.errors import assert_mentions
from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax.data import dataset_config
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.featurizers import classification_featurizer
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, result_store
from xlflax.interop.huggingface import huggingface_export
from xlflax.interop.huggingface.cards import model_card
from xlflax.training.checkpointing import config_serialization, run_directory
from xlflax.utils import class_registry

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']


def _write_result(
  directory,
  step,
  value,
  parameters='default',
  sentence=None,
  test_data='',
  max_examples=None,
  is_development=False,
  split='test',
  **settings,
):
  """Writes an evaluation result of a checkpoint."""
  result = eval_task.EvalResult(
    metrics={'accuracy/mean': value, 'accuracy/de': 0.25},
    score_metrics=('accuracy',),
    test_data=test_data,
    max_examples=max_examples,
    is_development=is_development,
  )
  identity = {
    'split': split,
    'task': {'name': 'retrieval'} | settings,
    'seed': 0,
    'parameters': parameters,
  } | ({} if sentence is None else {'sentence': sentence})
  result_store.write_result(directory, result, step=step, identity=identity)


def test_measured_results_are_in_the_card(run_of):
  directory, *_ = run_of()
  run_directory.write_run_file(directory, run_directory.TRAINER, {})
  _write_result(directory, 3, 0.5)
  _write_result(directory, 2, 0.1)
  checked = huggingface_export.check_export(directory)
  text = model_card.format_model_card(checked, name='mine', license='mit')
  card = huggingface_hub.ModelCard(text)
  result_by_metric = {
    result.metric_name: result for result in card.data.eval_results
  }
  assert result_by_metric.keys() == {'accuracy/mean', 'accuracy/de'}
  assert result_by_metric['accuracy/mean'].metric_value == 0.5
  assert {result.metric_type for result in result_by_metric.values()} == {
    'accuracy'
  }
  assert {result.dataset_name for result in result_by_metric.values()} == {
    'retrieval (test)'
  }
  assert card.data.model_name == 'mine' and card.data.license == 'mit'


def test_languages_outside_the_vocabulary_are_not_in_the_card(run_of):
  directory, *_ = run_of()
  result = eval_task.EvalResult(
    metrics={
      'perplexity/mean': 20.0,
      'perplexity/en': 4.0,
      'perplexity/de': 9.0,
      'perplexity/sw': 500.0,
      'accuracy/sw': 0.25,
      'accuracy/mean': 0.25,
    },
    score_metrics=('perplexity', 'accuracy'),
  )
  identity = {
    'split': 'test',
    'task': {'name': 'perplexity'},
    'seed': 0,
    'parameters': 'default',
  }
  result_store.write_result(directory, result, step=3, identity=identity)
  checked = huggingface_export.check_export(directory)
  assert {'en', 'de'} <= set(checked.run.vocabulary.spec.languages)
  text = model_card.format_model_card(checked, name='mine')
  # The geometric mean of 4 and 9 is 6.
  assert {
    result.metric_name: result.metric_value
    for result in huggingface_hub.ModelCard(text).data.eval_results
  } == {
    'perplexity/en': 4.0,
    'perplexity/de': 9.0,
    'perplexity/mean': pytest.approx(6.0),
  }
  assert_mentions(text.partition('## Evaluation')[2], 'sw')


def test_test_corpora_of_one_task_have_different_names(run_of):
  directory, *_ = run_of()
  for name, value in (('flores', 0.5), ('ntrex', 0.25)):
    _write_result(directory, 3, value, test_data=f'data/{name}', data=name)
  checked = huggingface_export.check_export(directory)
  text = model_card.format_model_card(checked, name='mine')
  results = huggingface_hub.ModelCard(text).data.eval_results
  assert {
    result.dataset_name: result.metric_value
    for result in results
    if result.metric_name == 'accuracy/mean'
  } == {'retrieval (test, flores)': 0.5, 'retrieval (test, ntrex)': 0.25}


def _dataset_names(directory):
  checked = huggingface_export.check_export(directory)
  text = model_card.format_model_card(checked, name='mine', license='mit')
  results = huggingface_hub.ModelCard(text).data.eval_results
  return {result.dataset_name: result.metric_value for result in results}


def test_results_on_a_subset_of_examples_are_marked(run_of):
  directory, *_ = run_of()
  run_directory.write_run_file(directory, run_directory.TRAINER, {})
  _write_result(
    directory, 3, 0.25, max_examples=20, test_data='data/flores', data='a'
  )
  [name] = _dataset_names(directory)
  assert_mentions(name, 'retrieval (test', 'at most 20 examples')
  # A complete result of other test data does not replace the result.
  _write_result(directory, 3, 0.25, test_data='data/ntrex', data='b')
  names = _dataset_names(directory)
  assert len(names) == 2
  # A complete result of other parameters does not either.
  _write_result(
    directory,
    3,
    0.25,
    test_data='data/flores',
    data='d',
    parameters='not averaged',
  )
  assert _dataset_names(directory) == names
  # A complete result of the same test data does.
  _write_result(directory, 3, 0.25, test_data='data/flores', data='c')
  names = _dataset_names(directory)
  assert names.keys() == {'retrieval (test, flores)', 'retrieval (test, ntrex)'}


def test_development_results_are_marked(run_of):
  directory, *_ = run_of()
  run_directory.write_run_file(directory, run_directory.TRAINER, {})
  _write_result(directory, 3, 0.25, split='all', is_development=True)
  assert _dataset_names(directory).keys() == {'retrieval (development set)'}
  _write_result(directory, 3, 0.25, split='test', is_development=True)
  [_, name] = sorted(_dataset_names(directory))
  assert_mentions(name, 'retrieval (test', 'evaluated during training')


def test_card_without_results_has_no_model_index(run_of):
  directory, *_ = run_of()
  text = model_card.format_model_card(
    huggingface_export.check_export(directory), name='mine'
  )
  card = huggingface_hub.ModelCard(text)
  assert card.data.eval_results is None and 'model-index' not in text


def test_card_contains_the_notice_of_the_corpus(run_of, tmp_path):
  directory, *_ = run_of()
  corpus = tmp_path / 'corpus'
  corpus.mkdir()
  fields = {
    'corpus': str(corpus),
    'optimizer': {'class': 'adamw', 'fields': {}},
    'objectives': {'fields': {'entries': []}},
    'datasets': [],
    'num_train_steps': 1,
    'seed': 0,
  }
  run_directory.write_run_file(
    directory, run_directory.TRAINER, {'fields': fields}
  )
  checked = huggingface_export.check_export(directory)
  assert '## Training text' not in model_card.format_model_card(
    checked, name='mine'
  )
  (corpus / 'NOTICE').write_text('Text by A and B, CC BY 4.0.\n')
  card = model_card.format_model_card(checked, name='mine')
  assert '## Training text\n\nText by A and B, CC BY 4.0.\n' in card


@pytest.mark.parametrize('is_trial', [True, False])
def test_card_names_the_labeled_training_data(run_of, tmp_path, is_trial):
  """The card has base names of files and counts of `xlflax finetune`."""
  directory, *_ = run_of()
  paths = {'en': 'data/train.tsv', 'fr': 'data/train.tsv'}
  dataset = supervised_dataset.LabeledDatasetConfig(
    name='labeled',
    source=example_source.FileDataset(format='tsv', files=paths),
    featurizer=classification_featurizer.ClassificationFeaturizer(
      labels=('a', 'b')
    ),
    length=8,
    batch_size=4,
  )
  pretraining = dataset_config.DatasetConfig(
    name='mono', mixture='corpus.mono', layout='blocks', length=8, batch_size=4
  )
  continued = dataclasses.replace(
    pretraining,
    name='adjacent',
    alpha=0.7,
    replay=dataset_config.ReplayOptions(new_languages=('sw',), fraction=0.2),
  )
  fields = {
    'optimizer': {'class': 'adamw', 'fields': {}},
    'objectives': {'fields': {'entries': []}},
    'datasets': [
      config_serialization.to_json_config(dataset),
      config_serialization.to_json_config(pretraining),
      config_serialization.to_json_config(continued),
    ],
    'num_train_steps': 1,
    'seed': 0,
  }
  run_directory.write_run_file(
    directory, run_directory.TRAINER, {'fields': fields}
  )
  if is_trial:
    data = [
      {
        'dataset': 'labeled',
        'language': language,
        'source': 'data/train.tsv',
        'num_examples': count,
      }
      for language, count in (('en', 1500), ('fr', 1))
    ]
    grid = {'training_data': data}
    (tmp_path / 'grid.json').write_text(json.dumps(grid))
    trial = tmp_path / 'trials' / 'SEED=0'
    trial.parent.mkdir()
    shutil.move(directory, trial)
    directory = trial
  text = model_card.format_model_card(
    huggingface_export.check_export(directory), name='mine'
  )
  rows = [line for line in text.splitlines() if line.startswith('| `')]
  languages = 'en, 1,500 examples; fr, 1 example' if is_trial else 'en; fr'
  assert rows == [
    f'| `train.tsv` ({languages}) | 4 | 8 | 1 |',
    '| `corpus.mono` | 4 | 8 | - |',
    '| `corpus.mono` | 4 | 8 | 0.7 (80 % of the sequences in sw, 20 % in other '
    'languages) |',
  ]


@class_registry.register('model_card_test_unreadable')
@dataclasses.dataclass(frozen=True, kw_only=True)
class _UnreadableSource(example_source.ExampleSource):
  """Source whose languages cannot be determined."""

  error: str

  def languages(self):
    raise {'OSError': OSError, 'ImportError': ImportError}[self.error]

  def load(self, part):
    raise NotImplementedError


@pytest.mark.parametrize('error', ['OSError', 'ImportError'])
def test_card_has_the_name_of_a_dataset_that_is_not_available(run_of, error):
  directory, *_ = run_of()
  dataset = supervised_dataset.LabeledDatasetConfig(
    name='labeled',
    source=_UnreadableSource(error=error),
    featurizer=classification_featurizer.ClassificationFeaturizer(
      labels=('a', 'b')
    ),
    length=8,
    batch_size=4,
  )
  fields = {
    'optimizer': {'class': 'adamw', 'fields': {}},
    'objectives': {'fields': {'entries': []}},
    'datasets': [config_serialization.to_json_config(dataset)],
    'num_train_steps': 1,
    'seed': 0,
  }
  run_directory.write_run_file(
    directory, run_directory.TRAINER, {'fields': fields}
  )
  text = model_card.format_model_card(
    huggingface_export.check_export(directory), name='mine'
  )
  assert '| `labeled` | 4 | 8 |' in text


def test_card_describes_the_initial_checkpoint(run_of, tmp_path):
  directory, *_ = run_of()
  fields = {
    'optimizer': {'class': 'adamw', 'fields': {}},
    'objectives': {
      'fields': {
        'entries': [{'fields': {'objective': {'fields': {'name': 'mlm'}}}}]
      }
    },
    'datasets': [],
    'num_train_steps': 7,
    'seed': 0,
  }
  first = tmp_path / 'first'
  first.mkdir()
  run_directory.write_run_file(first, run_directory.TRAINER, {'fields': fields})
  start = {'fields': {'model_dir': str(first), 'step': 5}}
  content = {'fields': fields | {'init_from': start}}
  run_directory.write_run_file(directory, run_directory.TRAINER, content)
  text = model_card.format_model_card(
    huggingface_export.check_export(directory), name='mine'
  )
  description = 'step 5 of an xlflax run (mlm), which was initialized from '
  assert f'- Initialized from: {description}random parameters' in text
  assert str(first) not in text


def test_results_with_other_pooling_or_parameters_are_omitted(run_of):
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  # mean without special tokens
  _write_result(directory, 3, 0.1, pooling=None, layer=None)
  _write_result(directory, 3, 0.2, pooling='mean_all', layer=None)
  _write_result(directory, 3, 0.3, pooling='mean_all', layer=1)
  _write_result(directory, 3, 0.4, parameters='not averaged')
  for pooling, value in (('mean_all', 0.2), (None, 0.1)):
    checked = huggingface_export.check_export(directory, pooling=pooling)
    text = model_card.format_model_card(checked, name='mine')
    results = huggingface_hub.ModelCard(text).data.eval_results
    [result] = [r for r in results if r.metric_name == 'accuracy/mean']
    assert result.metric_value == value
    # A plain export defines no pooling, so the card contains that of the scores.
    assert result.metric_args == {'pooling': pooling or 'mean', 'layers': [-1]}
    assert result.task_type == 'sentence-similarity'
    evaluation = text.partition('## Evaluation')[2].partition('##')[0]
    assert_mentions(evaluation, 'retrieval (test)', f'`{pooling or "mean"}`')
    definition = text.partition('## Sentence embeddings')[2].partition('##')[0]
    assert ('`mean_all`' in definition) == (pooling is not None)


def test_card_contains_the_pooling_of_the_run(run_of):
  """The settings of the task override the sentence encoding of the run."""
  directory, *_ = run_of(type_vocab_size=1, position_offset=2)
  sentence = {'pooling': 'first', 'layers': [1]}
  _write_result(directory, 3, 0.1, sentence=sentence, pooling=None, layer=None)
  _write_result(
    directory, 3, 0.2, sentence=sentence, pooling='mean', layer=None
  )
  checked = huggingface_export.check_export(directory)
  text = model_card.format_model_card(checked, name='mine')
  results = huggingface_hub.ModelCard(text).data.eval_results
  [result] = [r for r in results if r.metric_name == 'accuracy/mean']
  assert result.metric_value == 0.1
  assert result.metric_args == sentence


def test_scores_without_pooling_have_no_section(run_of):
  directory, *_ = run_of()
  _write_result(directory, 3, 0.5)
  checked = huggingface_export.check_export(directory)
  text = model_card.format_model_card(checked, name='mine')
  results = huggingface_hub.ModelCard(text).data.eval_results
  assert all(result.metric_args is None for result in results)
  assert '## Evaluation' not in text

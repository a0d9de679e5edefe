"""Tests of training, resuming, fine-tuning and evaluating a sharing plan."""

import dataclasses

import numpy as np
import pytest

from tests.training import tiny
from xlflax import trainer
from xlflax.data import dataset_config
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.tokenizers import vocabulary_training
from xlflax.evaluation import (
  eval_task,
  hidden_states,
  text_sources,
  token_batches,
)
from xlflax.evaluation.tasks import perplexity, retrieval_task
from xlflax.models.variants import parameter_sharing
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import param_tree
from xlflax.training.checkpointing import saved_run
from xlflax.training.devices import partitioning
from xlflax.training.initialization import init_from as initialization
from xlflax.training.optimization import optimizers

pytestmark = pytest.mark.slow

_PLAN = parameter_sharing.SharingPlan(embeddings=True, layers=1)
_WORDS = {
  'en': 'the small dog sees an old tree near water'.split(),
  'fr': 'le petit chien voit un vieil arbre sous la pluie'.split(),
}


def _sentences(language: str, count: int) -> list[str]:
  language_words = _WORDS[language]
  return [
    ' '.join(
      language_words[(i * i + k * (i % 4 + 1)) % len(language_words)]
      for k in range(3 + i % 4)
    )
    for i in range(count)
  ]


@pytest.fixture(scope='module')
def corpus(tmp_path_factory) -> str:
  directory = tmp_path_factory.mktemp('two')
  for split, count in (('train', 60), ('test', 20)):
    for language in _WORDS:
      corpus_writer.write_monolingual(
        directory, language, [_sentences(language, count)], split=split
      )
    corpus_writer.write_parallel(
      directory,
      ('en', 'fr'),
      zip(_sentences('en', count), _sentences('fr', count), strict=True),
      split=split,
    )
  return str(directory)


@pytest.fixture(scope='module')
def vocabulary(corpus, tmp_path_factory) -> str:
  """Separate vocabularies of the languages, with overlapping ids."""
  directory = tmp_path_factory.mktemp('vocabulary') / 'separate'
  vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(corpus),
    directory,
    size=27,
    anchors='separate',
    num_threads=1,
  )
  return str(directory)


@pytest.fixture(scope='module')
def train(corpus, vocabulary, tmp_path_factory):
  """Function that trains in a directory on one device."""
  seqio = pytest.importorskip('seqio')
  registries = (seqio.TaskRegistry, seqio.MixtureRegistry)
  before = [set(registry.names()) for registry in registries]
  root = tmp_path_factory.mktemp('runs')

  def call(name: str, **settings):
    objective = masked_lm.MaskedLM(random_words='language', mask_ratio=0.3)
    arguments = dict(
      model=tiny.make_model(None, num_languages=None, sharing=_PLAN),
      objectives=tiny.make_mixture(
        objective_mixture.WeightedObjective(dataset='mono', objective=objective)
      ),
      datasets=[
        dataset_config.DatasetConfig(
          name='mono',
          mixture='corpus.mono',
          layout='blocks',
          length=16,
          batch_size=8,
          batching='one_language',
        )
      ],
      vocabulary=vocabulary,
      corpus=corpus,
      num_train_steps=20,
      optimizer=optimizers.Adam(learning_rate=0.02),
      log_metrics_every=10,
      partitioner=tiny.one_device(),
    )
    return trainer.Trainer(
      model_dir=str(root / name), **arguments | settings
    ).train()

  yield call
  for registry, names in zip(registries, before, strict=True):
    for name in set(registry.names()) - names:
      registry.remove(name)


@pytest.fixture(scope='module')
def trained(train):
  """Run of 20 steps that was stopped and resumed at step 10."""
  first = train('pretrained', stop_after_steps=10)
  last = train('pretrained')
  return first, last, saved_run.load_run(last['model_dir'])


@pytest.fixture(scope='module')
def eval_model(trained) -> eval_task.EvalModel:
  _, _, run = trained
  return eval_task.EvalModel(
    model=run.model,
    params=run.restore_params(20),
    vocabulary=run.vocabulary,
    batch_size=8,
  )


def _language_encoder(eval_model, language: int) -> eval_task.EvalModel:
  """Returns the encoder of one language without a sharing plan."""
  model = eval_model.model.clone(
    config=dataclasses.replace(eval_model.model.config, sharing=None)
  )
  params = parameter_sharing.select_language_params(
    _PLAN, eval_model.params['model'], language
  )
  return dataclasses.replace(eval_model, model=model, params={'model': params})


def test_resumed_run_learns(trained):
  first, last, run = trained
  assert (first['step'], last['step']) == (10, 20)
  assert run.steps == [10, 20] and run.model.config.sharing == _PLAN
  assert last['loss'] < first['loss'] < np.log(27)
  before = param_tree.flatten_params(run.untrained_params())
  for name, leaf in param_tree.flatten_params(run.restore_params(20)).items():
    assert leaf.shape == before[name].shape
    if 'language_specific' in name and not name.endswith('key/bias'):
      for language in range(2):  # Each language had batches.
        assert (leaf[language] != before[name][language]).any(), name


def test_states_equal_those_of_the_language_encoders(eval_model):
  texts = _sentences('en', 5) + _sentences('fr', 9) + _sentences('en', 12)
  languages = [0] * 5 + [1] * 9 + [0] * 12
  states = hidden_states.sentence_states(eval_model, texts, languages).states
  for language in range(2):
    language_indices = np.flatnonzero(np.array(languages) == language)
    alone = hidden_states.sentence_states(
      _language_encoder(eval_model, language),
      [texts[i] for i in language_indices],
      [language] * len(language_indices),
    ).states
    np.testing.assert_allclose(states[:, language_indices], alone, atol=1e-5)
  other = hidden_states.sentence_states(
    _language_encoder(eval_model, 1), texts[:1], [0]
  ).states
  assert np.abs(states[:, :1] - other).max() > 0.1


def test_perplexity_equals_that_of_the_language_encoder(eval_model, corpus):
  task = perplexity.Perplexity(
    source=text_sources.CorpusText(directory=corpus), length=16, batch_size=4
  )
  result = eval_task.evaluate_task(task, eval_model)
  assert not result.failures
  objective = masked_lm.MaskedLM(random_words='language')
  dataset = dataset_config.DatasetConfig(
    name='perplexity', mixture='', layout='blocks', length=16, batch_size=4
  )
  for language, code in enumerate(_WORDS):
    ordinary = _language_encoder(eval_model, language)
    lines = eval_model.vocabulary.encode_batch(
      _sentences(code, 20), language=code
    )
    units = [
      (row,)
      for row in token_batches.split_into_blocks(
        lines, capacity=14, separator=eval_model.vocabulary.spec.eos_id
      )
    ]
    loss, _, tokens = perplexity.score_rows(
      ordinary, objective, units, (language,), dataset, 1
    ).sum(0)
    np.testing.assert_allclose(
      result.metrics[f'loss/{code}'], loss / tokens, rtol=1e-5
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Unknown(text_sources.PairSource):
  """Pairs of English and a language that the model was not trained on."""

  def pairs(self):
    return (('en', 'ja'),)

  def load(self, pair):
    return text_sources.PairedText(['a'], ['b'])


def test_retrieval_rejects_untrained_languages(eval_model, corpus):
  result = eval_task.evaluate_task(
    retrieval_task.Retrieval(
      source=text_sources.ParallelCorpus(directory=corpus)
    ),
    eval_model,
  )
  assert not result.failures and 0 < result.metrics['accuracy/fr'] <= 1
  (failure,) = eval_task.evaluate_task(
    retrieval_task.Retrieval(source=_Unknown()), eval_model
  ).failures
  assert failure.message == (
    'The model has no parameters for the requested language. Got: ja. '
    'Expected: one of en, fr.'
  )


def test_sequences_of_two_languages_are_rejected(eval_model, corpus):
  (failure,) = eval_task.evaluate_task(
    perplexity.TranslationPerplexity(
      source=text_sources.ParallelCorpus(directory=corpus)
    ),
    eval_model,
  ).failures
  assert 'translation_perplexity' in failure.message


def test_fine_tuning_keeps_frozen_language_parameters(train, trained):
  _, last, run = trained
  tuned = train(
    'tuned',
    num_train_steps=3,
    init_from=initialization.InitFromCheckpoint(model_dir=last['model_dir']),
    optimizer=optimizers.AdamW(
      learning_rate=0.02, frozen=('model/language_specific/',)
    ),
  )
  before = param_tree.flatten_params(run.restore_params(20))
  after = saved_run.load_run(tuned['model_dir']).restore_params(3)
  for name, leaf in param_tree.flatten_params(after).items():
    frozen = name.startswith('model/language_specific/')
    assert np.array_equal(leaf, before[name]) == frozen, name


def test_states_on_eight_devices_equal_one_device(eval_model, trained):
  _, _, run = trained
  texts = _sentences('en', 3) + _sentences('fr', 4)
  languages = [0] * 3 + [1] * 4
  mesh = partitioning.Partitioner(fsdp=2, tensor=2)
  sharded = dataclasses.replace(
    eval_model,
    partitioner=mesh,
    params=run.restore_params(20, partitioner=mesh),
  )
  np.testing.assert_allclose(
    hidden_states.sentence_states(sharded, texts, languages).states,
    hidden_states.sentence_states(eval_model, texts, languages).states,
    atol=1e-5,
  )

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from tests.errors import raises_error
from tests.slow import mark_slow
from xlflax.data import dataset_config
from xlflax.evaluation import result_tables, text_sources, token_batches
from xlflax.evaluation.tasks import perplexity
from xlflax.objectives import objective_base
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import randomness
from xlflax.training.devices import partitioning
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


@pytest.fixture
def task(corpus):
  return perplexity.Perplexity(
    source=text_sources.CorpusText(directory=corpus), length=16, batch_size=8
  )


def _loss_in_numpy(eval_model, objective, batches):
  """Returns the mean -log p of masked tokens, from the logits of all positions."""
  key = randomness.purpose_key(eval_model.seed, randomness.Purpose.EVALUATION)

  @jax.jit
  def masked_logits(batch, rng):
    context = objective_base.ObjectiveContext(
      vocabulary=eval_model.vocabulary.spec,
      step=jnp.int32(0),
      train=False,
      rng=rng,
    )
    token_ids, choice = objective.mask(batch, context, jax.random.split(rng)[0])
    return choice, eval_model.model.apply(
      {'params': eval_model.params['model']},
      token_ids,
      segment_ids=batch['segment_ids'],
      positions=batch['positions'],
      language_ids=batch['language_ids'],
    )

  losses, hits = [], []
  for index, batch in enumerate(batches):
    rng = jax.random.fold_in(jax.random.fold_in(key, index), 0)
    choice, logits = masked_logits(batch, rng)
    log_p = special.log_softmax(np.asarray(logits, np.float64), axis=-1)
    for row, slot in np.argwhere(np.asarray(choice.weights) > 0):
      position = int(choice.positions[row, slot])
      label = batch['token_ids'][row, position]
      losses.append(-log_p[row, position, label])
      hits.append(log_p[row, position].argmax() == label)
  return np.mean(losses), np.mean(hits), len(losses)


def test_perplexity_agrees_with_numpy(task, eval_model, sentences):
  metrics = task.evaluate(eval_model).metrics
  dataset = dataset_config.DatasetConfig(
    name='',
    mixture='',
    layout=dataset_config.ExampleLayout.BLOCKS,
    length=16,
    batch_size=8,
  )
  spec = eval_model.vocabulary.spec
  lines = eval_model.vocabulary.encode_batch(sentences('en', 40))
  units = [
    (row,)
    for row in token_batches.split_into_blocks(
      lines, capacity=14, separator=spec.eos_id
    )
  ]
  loss, accuracy, count = _loss_in_numpy(
    eval_model,
    masked_lm.MaskedLM(),
    token_batches.make_batches(units, (1,), dataset, spec),
  )
  assert metrics['tokens/en'] == count > 20
  assert metrics['loss/en'] == pytest.approx(loss, abs=1e-5)
  assert metrics['accuracy/en'] == pytest.approx(accuracy)
  assert metrics['perplexity/en'] == pytest.approx(math.exp(loss), rel=1e-5)


def test_perplexity_of_pairs_agrees_with_numpy(corpus, eval_model, sentences):
  metrics = (
    perplexity.TranslationPerplexity(
      source=text_sources.ParallelCorpus(directory=corpus),
      length=32,
      batch_size=8,
    )
    .evaluate(eval_model)
    .metrics
  )
  dataset = dataset_config.DatasetConfig(
    name='',
    mixture='',
    layout=dataset_config.ExampleLayout.PAIRS,
    length=32,
    batch_size=8,
  )
  units = token_batches.fitting_pairs(
    *(
      eval_model.vocabulary.encode_batch(sentences(language, 40))
      for language in ('en', 'ja')
    ),
    dataset,
  )
  loss, _, count = _loss_in_numpy(
    eval_model,
    masked_lm.TranslationLM(),
    token_batches.make_batches(
      units, (1, 2), dataset, eval_model.vocabulary.spec
    ),
  )
  assert metrics['tokens/ja'] == count
  assert metrics['loss/ja'] == pytest.approx(loss, abs=1e-5)
  assert set(metrics) >= {'perplexity/de', 'perplexity/ja', 'perplexity/mean'}


def test_perplexity_of_a_uniform_model_is_the_vocabulary_size(task, eval_model):
  zeros = dataclasses.replace(
    eval_model, params=jax.tree.map(jnp.zeros_like, eval_model.params)
  )
  metrics = task.evaluate(zeros).metrics
  assert metrics['perplexity/de'] == pytest.approx(
    eval_model.vocabulary.spec.size, rel=1e-4
  )


def test_mean_is_computed_from_losses(task, eval_model):
  metrics = task.evaluate(eval_model).metrics
  mean = np.mean([metrics[f'loss/{x}'] for x in ('de', 'en', 'ja')])
  assert metrics['loss/mean'] == pytest.approx(mean)
  assert metrics['perplexity/mean'] == pytest.approx(math.exp(mean))


def test_perplexity_is_deterministic_for_each_seed(task, eval_model):
  first = task.evaluate(eval_model).metrics
  assert task.evaluate(eval_model).metrics == first
  other = task.evaluate(dataclasses.replace(eval_model, seed=1)).metrics
  assert other['loss/de'] != first['loss/de']
  assert other['tokens/de'] == first['tokens/de']


def test_perplexity_does_not_depend_on_other_languages(
  corpus, task, eval_model
):
  alone = dataclasses.replace(
    task, source=text_sources.CorpusText(directory=corpus, languages=('ja',))
  )
  assert (
    alone.evaluate(eval_model).metrics['loss/ja']
    == task.evaluate(eval_model).metrics['loss/ja']
  )


def test_more_mask_samples_score_more_tokens(task, eval_model):
  single_draw = task.evaluate(eval_model).metrics
  three = (
    dataclasses.replace(task, num_mask_samples=3).evaluate(eval_model).metrics
  )
  assert three['tokens/de'] == 3 * single_draw['tokens/de']
  assert three['loss/de'] != single_draw['loss/de']


def test_sentences_layout_scores_one_sentence_per_row(task, eval_model):
  split = dataclasses.replace(task, layout='sentences', length=24)
  metrics = split.evaluate(eval_model).metrics
  assert metrics['tokens/de'] >= 40  # at least one token per sentence
  short = dataclasses.replace(split, length=6).evaluate(eval_model)
  assert any('sentences of de were truncated' in note for note in short.notes)
  blocks = dataclasses.replace(task, length=6).evaluate(eval_model)
  assert not any('were truncated' in note for note in blocks.notes)


@pytest.mark.parametrize('batch_size', mark_slow([8, 6], slow=[8]))
def test_eight_devices_agree_with_one(task, eval_model, batch_size):
  task = dataclasses.replace(task, batch_size=batch_size)
  partitioner = partitioning.Partitioner(data=4, tensor=2)
  sharded = dataclasses.replace(
    eval_model,
    partitioner=partitioner,
    params=jax.device_put(eval_model.params, partitioner.replicated),
  )
  expected = task.evaluate(eval_model).metrics
  metrics = task.evaluate(sharded).metrics
  for name, value in expected.items():
    assert metrics[name] == pytest.approx(value, rel=1e-5), name


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Broken(text_sources.TextSource):
  def languages_found(self):
    return 'de', 'en', 'ja'

  def load(self, language):
    if language == 'en':
      raise errors.CorpusError('Not UTF-8', where='en.txt:7')
    return [] if language == 'ja' else ['der Hund']


def test_invalid_and_empty_languages_are_reported(eval_model, task):
  result = dataclasses.replace(task, source=_Broken()).evaluate(eval_model)
  assert result.metrics['perplexity/mean'] == result.metrics['perplexity/de']
  assert [failure.part for failure in result.failures] == ['en', 'ja']
  assert 'en.txt:7' in result.failures[0].message


@pytest.mark.parametrize(
  'settings, got',
  [
    (dict(layout='pairs'), 'ExampleLayout.PAIRS'),
    (dict(layout='rows'), 'rows'),
    (dict(num_mask_samples=0), 0),
  ],
)
def test_invalid_settings_are_rejected(task, settings, got):
  with raises_error(errors.ConfigError, got=got):
    dataclasses.replace(task, **settings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PartlyUnknown(text_sources.TextSource):
  """Text in which Cyrillic letters are unknown to the vocabulary."""

  def languages_found(self):
    return 'de', 'en', 'ja'

  def load(self, language):
    return {
      'de': ['der Hund', 'собака и кошка', 'die Katze schläft'],
      'en': ['the dog sleeps', 'the cat'],
      'ja': ['いぬ が ねむる'] * 30 + ['いぬ ж ねむる'],
    }[language]


def _unknown_rate(eval_model, lines):
  ids = np.concatenate(eval_model.vocabulary.encode_batch(lines))
  return np.mean(ids == eval_model.vocabulary.spec.unk_id)


@pytest.mark.parametrize('layout', ['blocks', 'sentences'])
def test_unknown_tokens_are_counted(eval_model, task, layout):
  source = _PartlyUnknown()
  result = dataclasses.replace(
    task, source=source, layout=layout, num_mask_samples=3
  ).evaluate(eval_model)
  rates = {
    code: _unknown_rate(eval_model, source.load(code))
    for code in source.languages_found()
  }
  assert rates['de'] > 0.01 > rates['ja'] > rates['en'] == 0
  recorded = {
    name: value for name, value in result.metrics.items() if 'unknown' in name
  }
  assert recorded == {
    'unknown_rate/de': pytest.approx(rates['de']),
    'unknown_rate/ja': pytest.approx(rates['ja']),
  }
  notes = [note for note in result.notes if 'unknown' in note]
  assert len(notes) == 1
  assert f'{100 * rates["de"]:.1f} %' in notes[0] and ' de ' in notes[0]
  assert not any('unknown' in content for content in result.files.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PartlyUnknownPairs(text_sources.PairSource):
  def pairs(self):
    return (('de', 'en'),)

  def load(self, pair):
    return ['der Hund', 'собака и кошка'], ['the dog', 'the dog and the cat']


def test_unknown_tokens_of_pairs_are_counted(eval_model):
  source = _PartlyUnknownPairs()
  task = perplexity.TranslationPerplexity(
    source=source, length=32, batch_size=8, num_mask_samples=3
  )
  result = task.evaluate(eval_model)
  first, second = source.load(('de', 'en'))
  [(name, rate)] = [
    (name, rate) for name, rate in result.metrics.items() if 'unknown' in name
  ]
  part = name.removeprefix('unknown_rate/')
  assert f'perplexity/{part}' in result.metrics
  assert rate == pytest.approx(_unknown_rate(eval_model, first + second))
  assert any('unknown' in note for note in result.notes)


def test_infinite_perplexity_is_null_in_json():
  rows = np.array([[4000.0, 0.0, 2.0]])
  result = perplexity.evaluate_parts('x', {'de': 'de'}, lambda _: rows, [])
  for name in ('perplexity/de', 'perplexity/mean'):
    assert result.metrics[name] == math.inf
    assert result.to_json()['metrics'][name] is None


def test_statistics_equal_the_metrics(tmp_path, task, eval_model):
  result = task.evaluate(eval_model)
  for name, text in result.files.items():
    (tmp_path / name).write_text(text)
  statistics = task.statistics('en', tmp_path)
  for metric in ('perplexity', 'loss', 'accuracy'):
    assert statistics[metric].value == pytest.approx(
      result.metrics[f'{metric}/en']
    )
  bounds = result_tables.result_intervals(task, result, tmp_path)
  assert {'perplexity/en', 'perplexity/mean', 'loss/mean'} <= set(bounds)
  low, high = bounds['perplexity/mean']
  assert low < result.metrics['perplexity/mean'] < high

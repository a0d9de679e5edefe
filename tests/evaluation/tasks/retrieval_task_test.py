import dataclasses

import numpy as np
import pytest
from scipy.spatial import distance

from tests.errors import assert_mentions, raises_error
from xlflax.evaluation import eval_task, hidden_states, text_sources
from xlflax.evaluation.tasks import retrieval_task
from xlflax.objectives.model_calls import Pooling
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


@dataclasses.dataclass(frozen=True, kw_only=True)
class InMemoryPairs(text_sources.PairSource):
  """Pairs in memory; language pairs without text raise an error."""

  text: dict

  def pairs(self):
    return tuple(self.text)

  def load(self, pair):
    if self.text[pair] is None:
      raise errors.CorpusError('This text is broken', where='x.tsv:3')
    return text_sources.PairedText(*self.text[pair])


def test_identical_sentences_are_retrieved(eval_model, sentences):
  text = sentences('de', 30)
  task = retrieval_task.Retrieval(
    source=InMemoryPairs(text={('de', 'de'): (text, text)}), pair_filter='none'
  )
  result = task.evaluate(eval_model)
  assert result.metrics['accuracy/de-de'] == 1.0
  assert {row['accuracy'] for row in result.tables['layers']} == {1.0}


@pytest.mark.parametrize(
  'num_copies, warns', [(0, False), (1, False), (9, True)]
)
def test_duplicates_limit_the_accuracy(
  eval_model, sentences, caplog, num_copies, warns
):
  text = [f'{sentence} {i}' for i, sentence in enumerate(sentences('de', 30))]
  text = text[: 30 - num_copies] + text[:num_copies]
  task = retrieval_task.Retrieval(
    source=InMemoryPairs(text={('de', 'de'): (text, text)}), pair_filter='none'
  )
  result = task.evaluate(eval_model)
  maximum = (30 - num_copies) / 30
  assert result.metrics['accuracy/de-de'] <= maximum
  notes = [note for note in result.notes if 'copies' in note]
  assert len(notes) == bool(num_copies)
  for note in notes:
    assert_mentions(note, f'{num_copies} of 30', f'{maximum:.3f}')
  warnings = [message for message in caplog.messages if 'copies' in message]
  assert len(warnings) == warns


def test_ten_nearest_equal_a_full_sort(eval_model, sentences, tmp_path):
  text = sentences('de', 30), sentences('en', 30)
  task = retrieval_task.Retrieval(
    source=InMemoryPairs(text={('de', 'en'): text}), layer=1, centering='none'
  )
  result = task.evaluate(eval_model)
  sides = [
    hidden_states.sentence_states(eval_model, side, [i] * 30).states[1]
    for i, side in enumerate(text)
  ]
  cosine = 1 - distance.cdist(*sides, 'cosine')
  expected = [
    np.mean([i in np.argsort(-row)[:10] for i, row in enumerate(way)])
    for way in (cosine, cosine.T)
  ]
  assert min(expected) > 10 / 30 and max(expected) < 1
  accuracies = [
    result.metrics[f'{way}_top10/de'] for way in ('forward', 'backward')
  ]
  assert accuracies == pytest.approx(expected)
  assert result.metrics['accuracy_top10/de'] == pytest.approx(np.mean(expected))
  for name, content in result.files.items():
    (tmp_path / name).write_text(content)
  held = task.statistics('de', tmp_path)
  assert held['backward_top10'].value == pytest.approx(expected[1])
  assert held['forward'].value == pytest.approx(result.metrics['forward/de'])


@pytest.mark.parametrize('pooling', list(Pooling))
def test_accuracy_agrees_with_a_double_loop(eval_model, pooling, sentences):
  text = sentences('de', 12), sentences('en', 12)
  task = retrieval_task.Retrieval(
    source=InMemoryPairs(text={('de', 'en'): text}), pooling=pooling, layer=1
  )
  result = task.evaluate(eval_model)
  first = hidden_states.sentence_states(
    eval_model, text[0], [0] * 12, pooling=pooling
  )
  second = hidden_states.sentence_states(
    eval_model, text[1], [1] * 12, pooling=pooling
  )
  for layer in range(3):
    x, y = first.states[layer], second.states[layer]
    cosine = 1 - distance.cdist(x, y, 'cosine')
    forward = sum(int(np.argmax(cosine[i])) == i for i in range(12)) / 12
    backward = sum(int(np.argmax(cosine[:, i])) == i for i in range(12)) / 12
    rows = {
      row['query']: row['accuracy']
      for row in result.tables['layers']
      if row['layer'] == layer
    }
    assert rows == {'de': forward, 'en': backward}
    if layer == 1:
      assert result.metrics['forward/de'] == forward
      assert result.metrics['backward/de'] == backward
      assert result.metrics['accuracy/de'] == (forward + backward) / 2


def test_best_layer_and_mean_equal_the_layer_table(eval_model, sentences):
  task = retrieval_task.Retrieval(
    source=InMemoryPairs(
      text={
        ('de', 'en'): (sentences('de', 9), sentences('en', 9)),
        ('en', 'ja'): (sentences('en', 9), sentences('ja', 9)),
      }
    )
  )
  result = task.evaluate(eval_model)
  table = {
    name: np.mean(
      [
        [
          row['accuracy']
          for row in result.tables['layers']
          if row['pair'] == name and row['query'] == query
        ]
        for query in (name, 'en')
      ],
      axis=0,
    )
    for name in ('de', 'ja')
  }
  metrics = result.metrics
  for name, by_layer in table.items():
    assert metrics[f'accuracy/{name}'] == by_layer[-1]
    assert metrics[f'best_accuracy/{name}'] == max(by_layer)
    assert by_layer[metrics[f'best_layer/{name}']] == max(by_layer)
  mean = (table['de'] + table['ja']) / 2
  assert metrics['accuracy/mean'] == pytest.approx(mean[-1])
  assert metrics['best_accuracy/mean'] == pytest.approx(max(mean))
  assert 'layer 2 of 0..2' in result.notes[0]


def test_failed_pair_does_not_affect_other_pairs(eval_model, sentences):
  text = sentences('de', 5), sentences('en', 5)
  task = retrieval_task.Retrieval(
    source=InMemoryPairs(
      text={
        ('en', 'ja'): None,
        ('de', 'en'): text,
        ('de', 'ja'): (text[0], text[1][:3]),
      }
    )
  )
  result = task.evaluate(eval_model)
  assert result.metrics['accuracy/mean'] == result.metrics['accuracy/de']
  assert [(f.task, f.part) for f in result.failures] == [
    ('retrieval', 'ja'),
    ('retrieval', 'de-ja'),
  ]
  assert_mentions(result.failures[0], 'x', 'x.tsv:3')
  assert_mentions(result.failures[1], 5, 3)


def test_languages_outside_the_vocabulary_are_scored_and_noted(
  eval_model, sentences
):
  text = sentences('de', 5), sentences('en', 5)
  task = retrieval_task.Retrieval(
    source=InMemoryPairs(text={('en', 'tr'): text})
  )
  result = task.evaluate(eval_model)
  assert 'accuracy/tr' in result.metrics
  assert any('the language tr;' in note for note in result.notes)


def test_truncated_sentences_are_noted(eval_model, sentences):
  text = sentences('de', 9), sentences('en', 9)
  task = retrieval_task.Retrieval(
    source=InMemoryPairs(text={('de', 'en'): text}), max_length=8
  )
  notes = task.evaluate(eval_model).notes
  assert any('sentences of de-en were truncated' in note for note in notes)


@pytest.mark.parametrize('layer', [3, -4])
def test_missing_layer_is_reported(eval_model, layer):
  task = retrieval_task.Retrieval(source=InMemoryPairs(text={}), layer=layer)
  (failure,) = eval_task.evaluate_task(task, eval_model).failures
  assert_mentions(failure, 0, 2)


@pytest.mark.parametrize(('layer', 'expected'), [(None, 2), (1, 1), (-3, 0)])
def test_the_scored_layer_is_recorded(eval_model, sentences, layer, expected):
  text = sentences('de', 5), sentences('en', 5)
  task = retrieval_task.Retrieval(
    source=InMemoryPairs(text={('de', 'en'): text}), layer=layer
  )
  result = eval_task.evaluate_task(task, eval_model)
  assert (result.layers, result.num_layers) == ((expected,), 2)
  rows = [row for row in result.tables['layers'] if row['layer'] == expected]
  accuracy = np.mean([row['accuracy'] for row in rows])
  assert result.metrics['accuracy/de'] == pytest.approx(accuracy)


def test_pooling_by_name():
  source = InMemoryPairs(text={})
  task = retrieval_task.Retrieval(source=source, pooling='first')
  assert task.pooling is Pooling.FIRST
  with raises_error(
    errors.ConfigError, got='max', mentions=('mean', 'mean_all')
  ):
    retrieval_task.Retrieval(source=source, pooling='max')


def _given_vectors(monkeypatch, layers):
  """Replaces the hidden states by the given ones of shape [L, 2N, H]."""

  def given(eval_model, texts, ids, **settings):
    del eval_model, ids, settings
    assert len(texts) == layers.shape[1]
    return hidden_states.SentenceStates(np.asarray(layers, np.float32), 0)

  monkeypatch.setattr(hidden_states, 'sentence_states', given)


# Two pairs without and two with a common string, one pair of equal sides and one
# of a number.
_FIRST = [
  'ein Hund', 'Python 3', 'zwei Katzen', 'Öl im PDF-Buch', 'OK!', '12 %'
]  # fmt: skip
_SECOND = [
  'a dog', 'python, the language', 'two cats', 'oil in a pdf', 'ok', '12 per cent'
]  # fmt: skip


def _task(**settings):
  text = (_FIRST, _SECOND)
  return retrieval_task.Retrieval(
    source=InMemoryPairs(text={('de', 'en'): text}), **settings
  )


def test_pairs_with_and_without_common_strings_are_separate(
  eval_model, monkeypatch, tmp_path
):
  """Sentence 0 retrieves its translation, but target 2 is nearest to source 3."""
  x = np.eye(4)
  y = x[[0, 1, 3, 3]] + [[0] * 4, [0] * 4, [0, 0, 0.1, 0], [0] * 4]
  _given_vectors(monkeypatch, np.repeat(np.concatenate([x, y])[None], 3, 0))
  result = _task().evaluate(eval_model)
  # Sources 2 and 3 retrieve their translations, and target 2 retrieves source 3.
  expected = {
    'forward/de': 1,
    'backward/de': 3 / 4,
    'accuracy/de': 7 / 8,
    'accuracy_unshared/de': 3 / 4,
    'accuracy_shared/de': 1,
    'accuracy_unshared/mean': 3 / 4,
  }
  assert {name: result.metrics[name] for name in expected} == expected
  for name, content in result.files.items():
    (tmp_path / name).write_text(content)
  unshared = _task().statistics('de', tmp_path)['accuracy_unshared']
  assert unshared.value == 3 / 4 and len(unshared.rows) == 2
  (row,) = result.tables['pairs']
  counts = ('sentences', 'unshared', 'shared', 'equal', 'without_letters')
  assert [row[name] for name in counts] == [4, 2, 2, 1, 1]
  assert (
    'de-en: 1 pairs of equal sentences and 1 with a sentence without letters '
    'are left out'
  ) in result.notes
  assert {row['sentences'] for row in result.tables['layers']} == {4}


def test_pair_filter_none_scores_all_pairs(eval_model, monkeypatch):
  _given_vectors(monkeypatch, np.tile(np.eye(6), (3, 2, 1)))
  result = _task(pair_filter='none').evaluate(eval_model)
  assert {row['sentences'] for row in result.tables['layers']} == {6}
  assert not any('left out' in note for note in result.notes)


def test_pair_without_remaining_sentences_fails(eval_model):
  text = ['OK', '7'], ['ok.', '7!']
  task = retrieval_task.Retrieval(
    source=InMemoryPairs(text={('de', 'en'): text})
  )
  (failure,) = task.evaluate(eval_model).failures
  assert_mentions(failure, 1)


def _language_vectors(count: int, seed: int = 0):
  """Returns vectors whose meaning is dominated by large language means."""
  draw = np.random.default_rng(seed)
  meaning = draw.normal(size=(count, 8))
  noise = draw.normal(size=(2, count, 8)) * 0.3
  means = 20 * draw.normal(size=(2, 1, 8))
  return meaning + noise + means


def _words(language: str, count: int) -> list[str]:
  letters = {'de': 'abcdefghij', 'en': 'klmnopqrst'}[language]
  return [''.join(letters[int(c)] for c in str(i)) for i in range(count)]


@pytest.mark.parametrize(
  'count, centre, is_centred',
  [
    (50, 'auto', True),
    (49, 'auto', False),
    (49, 'language', True),
    (60, 'none', False),
  ],
)
def test_language_means_are_subtracted(
  eval_model, monkeypatch, count, centre, is_centred
):
  """Compares accuracy and mean cosines with loops over centered states."""
  sides = _language_vectors(count)
  _given_vectors(monkeypatch, np.repeat(np.concatenate(sides)[None], 3, 0))
  text = _words('de', count), _words('en', count)
  result = retrieval_task.Retrieval(
    source=InMemoryPairs(text={('de', 'en'): text}), centering=centre
  ).evaluate(eval_model)
  raw = 1 - distance.cdist(*sides, 'cosine')
  compared = raw
  if is_centred:
    compared = 1 - distance.cdist(*(s - s.mean(0) for s in sides), 'cosine')
  order = np.arange(count)
  assert result.metrics['forward/de'] == np.mean(compared.argmax(1) == order)
  assert result.metrics['backward/de'] == np.mean(compared.argmax(0) == order)
  off_diagonal = ~np.eye(count, dtype=bool)
  row = result.tables['layers'][0]
  for name, matrix in (('', raw), ('compared_', compared)):
    assert row[f'{name}pair_cosine'] == pytest.approx(matrix.trace() / count)
    assert row[f'{name}other_cosine'] == pytest.approx(
      matrix[off_diagonal].mean()
    )
  assert result.metrics['pair_cosine/de'] == row['pair_cosine']
  expected_note = 'the mean of its language is subtracted from each vector'
  assert (expected_note in result.notes) == is_centred
  if centre == 'auto' and not is_centred:
    assert any('49 sentences' in note for note in result.notes)


def test_centering_recovers_translations(eval_model, monkeypatch):
  sides = _language_vectors(60)
  _given_vectors(monkeypatch, np.repeat(np.concatenate(sides)[None], 3, 0))
  text = _words('de', 60), _words('en', 60)
  accuracies = {
    centre: retrieval_task.Retrieval(
      source=InMemoryPairs(text={('de', 'en'): text}), centering=centre
    )
    .evaluate(eval_model)
    .metrics['accuracy/de']
    for centre in ('auto', 'none')
  }
  assert accuracies['none'] < 0.4 < 0.8 < accuracies['auto']


@pytest.mark.parametrize('centre, best', [('auto', 1), ('none', 0)])
def test_best_layer_depends_on_centering(eval_model, monkeypatch, centre, best):
  """Layer 1 is best after centering, and layer 2 is constant."""
  hidden = _language_vectors(60)
  centered = hidden - hidden.mean(1, keepdims=True)
  centered[1] += np.random.default_rng(1).normal(size=centered[1].shape)
  layers = [centered, hidden, np.ones_like(hidden)]
  _given_vectors(monkeypatch, np.array([np.concatenate(x) for x in layers]))
  text = _words('de', 60), _words('en', 60)
  metrics = (
    retrieval_task.Retrieval(
      source=InMemoryPairs(text={('de', 'en'): text}), centering=centre
    )
    .evaluate(eval_model)
    .metrics
  )
  assert metrics['best_layer/de'] == metrics['best_layer/mean'] == best
  assert metrics['best_accuracy/de'] > 0.4
  assert metrics['accuracy/de'] <= 1 / 60


@pytest.mark.parametrize('k', [1, 3])
def test_csls_equals_its_formula(eval_model, monkeypatch, k):
  sides = _language_vectors(12, seed=3)
  _given_vectors(monkeypatch, np.repeat(np.concatenate(sides)[None], 3, 0))
  text = _words('de', 12), _words('en', 12)
  result = retrieval_task.Retrieval(
    source=InMemoryPairs(text={('de', 'en'): text}),
    csls=k,
    centering='language',
  ).evaluate(eval_model)
  cosine = 1 - distance.cdist(*(s - s.mean(0) for s in sides), 'cosine')
  of_first = np.sort(cosine, 1)[:, -k:].mean(1)
  of_second = np.sort(cosine, 0)[-k:].mean(0)
  scores = 2 * cosine - of_first[:, None] - of_second
  accuracies = [
    np.mean(scores.argmax(axis) == np.arange(12)) for axis in (1, 0)
  ]
  assert result.metrics['csls/de'] == np.mean(accuracies)
  assert result.metrics['csls_unshared/de'] == np.mean(accuracies)
  assert 'accuracy_shared/de' not in result.metrics  # No pair has this kind.


def test_csls_none_omits_csls_metrics(eval_model, sentences):
  task = _task(csls=None)
  result = task.evaluate(eval_model)
  assert not any(name.startswith('csls') for name in result.metrics)
  assert not any('csls' in row for row in result.tables['layers'])


def test_string_overlap_baseline_uses_the_same_pairs(eval_model):
  """The pairs with `python` and `pdf` are retrieved among the four kept pairs."""
  metrics = _task().evaluate(eval_model).metrics
  assert metrics['string_overlap_unshared/de'] == 0
  assert metrics['string_overlap/de'] == 1 / 2

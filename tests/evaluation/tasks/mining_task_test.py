import dataclasses

import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, hidden_states
from xlflax.evaluation.tasks import mining_task
from xlflax.similarity import margin_scoring
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


@dataclasses.dataclass(frozen=True, kw_only=True)
class InMemoryBitext(example_source.BitextMiningSource):
  """Collections in memory; parts without collections raise an error."""

  parts: dict

  def languages(self):
    return tuple(self.parts)

  def load(self, part):
    if self.parts[part] is None:
      raise errors.CorpusError('This text is broken', where='x.tsv:3')
    return self.parts[part]


def _mined(first, second, gold, languages=('de', 'en')):
  """Returns collections in which sentence i of a side has the id <code>-<i>."""
  sides = [
    {f'{code}-{i:02}': text for i, text in enumerate(texts)}
    for code, texts in zip(languages, (first, second), strict=True)
  ]
  pairs = (
    None
    if gold is None
    else frozenset(
      (f'{languages[0]}-{i:02}', f'{languages[1]}-{j:02}') for i, j in gold
    )
  )
  return labeled_examples.BitextSentences(
    languages=languages, first=sides[0], second=sides[1], gold=pairs
  )


@pytest.fixture
def common_sentences(sentences):
  """Collections with ten common German sentences in different positions."""
  text = sentences('de', 30)
  return _mined(
    text[:20], text[10:32], [(i, i - 10) for i in range(10, 20)], ('de', 'de')
  )


@pytest.mark.parametrize(
  'margin, min_pairs', [('absolute', 1.0), ('distance', 0.8), ('ratio', 0.8)]
)
def test_identical_sentences_are_mined(
  eval_model, common_sentences, margin, min_pairs
):
  """With a margin, isolated pairs can score above identical sentences."""
  task = mining_task.BitextMining(
    source=InMemoryBitext(parts={'de-de': common_sentences}), margin=margin
  )
  result = task.evaluate(eval_model)
  assert result.metrics['f1/de-de'] == result.metrics['f1/mean'] >= min_pairs
  assert result.metrics['recall/de-de'] >= min_pairs
  mined_lines = set(result.files['de-de.tsv'].splitlines())
  right = {f'de-{i:02}\tde-{i - 10:02}' for i in range(10, 20)}
  assert len(mined_lines & right) == 10 * result.metrics['recall/de-de']
  assert (
    len(mined_lines & right)
    == len(mined_lines) * result.metrics['precision/de-de']
  )
  assert any('no development data' in note for note in result.notes)


def test_mining_equals_loops_over_sentences(eval_model, sentences):
  """Uses the ratio margin, forward direction, k = 2 and the best threshold."""
  text = sentences('de', 9), sentences('en', 12)
  gold = [(i, i) for i in range(7)]
  task = mining_task.BitextMining(
    source=InMemoryBitext(parts={'de-en': _mined(*text, gold)}),
    num_neighbors=2,
    direction='forward',
    layer=1,
    pooling='first',
  )
  result = task.evaluate(eval_model)
  x, y = (
    hidden_states.sentence_states(
      eval_model, side, [i] * len(side), pooling=task.pooling
    ).states[1]
    for i, side in enumerate(text)
  )
  cosine = np.array(
    [[a @ b / np.sqrt((a @ a) * (b @ b)) for b in y] for a in x]
  )
  scored = {}
  for i in range(9):
    near = np.argsort(-cosine[i])[:2]
    margins = [
      cosine[i, j]
      / (
        np.sort(cosine[i])[-2:].sum() / 4 + np.sort(cosine[:, j])[-2:].sum() / 4
      )
      for j in near
    ]
    scored[i, int(near[np.argmax(margins)])] = max(margins)
  best = 0
  for threshold in scored.values():
    mined_pairs = {pair for pair, score in scored.items() if score >= threshold}
    best = max(
      best, 2 * len(mined_pairs & set(gold)) / (len(mined_pairs) + len(gold))
    )
  assert result.metrics['f1/de'] == pytest.approx(best)
  (row,) = result.tables['pairs']
  assert (row['candidates'], row['gold'], row['tuned_on']) == (9, 7, 'itself')
  expected_pairs = {
    pair
    for pair, score in scored.items()
    if score >= result.metrics['threshold/de'] - 1e-5
  }
  assert result.files['de.tsv'] == ''.join(
    sorted(f'de-{i:02}\ten-{j:02}\n' for i, j in expected_pairs)
  )


def test_threshold_of_the_development_set_is_used(
  eval_model, sentences, common_sentences
):
  text = sentences('de', 30)
  blind = dataclasses.replace(common_sentences, gold=None)
  development = InMemoryBitext(
    parts={
      'de-de': _mined(
        text[:8], text[4:12], [(i, i - 4) for i in range(4, 8)], ('de', 'de')
      )
    }
  )
  alone = mining_task.BitextMining(source=development).evaluate(eval_model)
  task = mining_task.BitextMining(
    source=InMemoryBitext(parts={'de-de': blind}), development=development
  )
  result = task.evaluate(eval_model)
  assert result.metrics == {'threshold/de-de': alone.metrics['threshold/de-de']}
  scored = mining_task.BitextMining(
    source=InMemoryBitext(parts={'de-de': common_sentences}),
    development=development,
  )
  with_gold = scored.evaluate(eval_model)
  assert with_gold.files['de-de.tsv'] == result.files['de-de.tsv']
  assert with_gold.tables['pairs'][0]['tuned_on'] == 'development'
  assert 'f1/de-de' in with_gold.metrics
  assert not any('no development' in note for note in with_gold.notes)


def _xtreme_scores(mined, scored, pairs):
  """Returns the scores of XTREME's bucc_eval and evaluate.py.

  Candidates of repeated texts are dropped, but all published gold pairs count.
  """
  ids = []
  for side in (mined.first, mined.second):
    texts = list(side.values())
    ids.append({v: k for k, v in side.items() if texts.count(v) == 1})
  candidates = {
    (ids[0][x], ids[1][y]): score
    for (x, y), score in scored.items()
    if x in ids[0] and y in ids[1]
  }
  best = (0.0, 0.0)
  for position in range(len(candidates)):
    ranked = sorted(candidates, key=lambda pair: -candidates[pair])[
      : position + 1
    ]
    right = len(mined.gold.intersection(ranked))
    best = max(best, (2 * right / (len(ranked) + len(mined.gold)), -position))
  right = len(mined.gold & pairs)
  return best[0], 2 * right / (len(pairs) + len(mined.gold))


def test_scores_of_repeated_sentences_equal_xtreme(
  eval_model, common_sentences
):
  first = common_sentences.first | {
    'again-1': common_sentences.first['de-12'],
    'again-2': common_sentences.first['de-00'],
  }
  gold = common_sentences.gold | {('again-1', 'de-02')}
  mined = dataclasses.replace(common_sentences, first=first, gold=gold)
  task = mining_task.BitextMining(source=InMemoryBitext(parts={'x': mined}))
  result = task.evaluate(eval_model)
  texts = [
    list(dict.fromkeys(side.values())) for side in (mined.first, mined.second)
  ]
  sides = task.sides(
    eval_model, [['de'] * len(side) for side in texts], texts, []
  )
  candidates = margin_scoring.find_candidates(*sides, k=task.num_neighbors)
  scored = {
    (texts[0][i], texts[1][j]): score
    for i, j, score in zip(
      candidates.first, candidates.second, candidates.scores, strict=True
    )
  }
  pairs = {
    tuple(line.split('\t')) for line in result.files['de-de.tsv'].splitlines()
  }
  assert len(pairs) > 5 and not any('again' in name for name, _ in pairs)
  ours = result.metrics['f1/de-de']
  assert _xtreme_scores(mined, scored, pairs) == pytest.approx((ours, ours))
  assert result.metrics['recall/de-de'] <= 9 / 11
  assert any('4 sentences of x' in note for note in result.notes)


def test_failed_part_does_not_affect_other_parts(eval_model, common_sentences):
  task = mining_task.BitextMining(
    source=InMemoryBitext(
      parts={
        'fr-en': None,
        'de-de': common_sentences,
        'ja-en': dataclasses.replace(common_sentences, gold=None),
        'en-de': dataclasses.replace(
          common_sentences, gold=frozenset({('de-99', 'de-00')})
        ),
        'de-ja': dataclasses.replace(
          common_sentences, first={}, gold=frozenset()
        ),
      }
    )
  )
  result = task.evaluate(eval_model)
  assert result.metrics['f1/mean'] == result.metrics['f1/de-de']
  messages = {f.part: str(f) for f in result.failures}
  assert 'This text is broken. Where: x.tsv:3.' in messages['fr-en']
  assert_mentions(messages['ja-en'], 'ja-en', 'test')
  assert_mentions(messages['en-de'], 'de-99', 'de-00')
  assert_mentions(messages['de-ja'], 'de')


def test_invalid_settings_are_rejected(eval_model, common_sentences):
  source = InMemoryBitext(parts={'de-de': common_sentences})
  with raises_error(
    errors.ConfigError,
    got='cosine',
    where='BitextMining.margin',
    mentions=('absolute', 'distance'),
  ):
    mining_task.BitextMining(source=source, margin='cosine')
  with raises_error(
    errors.ConfigError,
    got='both',
    where='BitextMining.direction',
    mentions=('forward', 'backward'),
  ):
    mining_task.BitextMining(source=source, direction='both')
  task = mining_task.BitextMining(source=source, layer=5)
  (failure,) = eval_task.evaluate_task(task, eval_model).failures
  assert failure


def test_language_means_are_subtracted(eval_model, sentences):
  text = sentences('de', 70)
  mined = _mined(
    text[:60], text[10:], [(i, i - 10) for i in range(10, 60)], ('de', 'de')
  )
  thresholds = {
    centre: mining_task.BitextMining(
      source=InMemoryBitext(parts={'de-de': mined}),
      margin='absolute',
      centering=centre,
    )
    .evaluate(eval_model)
    .metrics['threshold/de-de']
    for centre in ('auto', 'language', 'none')
  }
  assert thresholds['auto'] == thresholds['language'] != thresholds['none']


def test_sides_are_centered_separately(eval_model, sentences):
  text = sentences('de', 60), sentences('en', 50)
  task = mining_task.BitextMining(source=InMemoryBitext(parts={}), layer=1)
  notes = []
  sides = task.sides(eval_model, (['de'] * 60, ['en'] * 50), text, notes)
  for i, (vectors, side) in enumerate(zip(sides, text, strict=True)):
    raw = hidden_states.sentence_states(
      eval_model, side, [i] * len(side)
    ).states[1]
    np.testing.assert_allclose(vectors, raw - raw.mean(0), atol=1e-5)
  assert notes[-1] == 'the mean of its language is subtracted from each vector'


def test_both_directions_of_a_pair_are_rejected(eval_model):
  task = mining_task.BitextMining(
    source=InMemoryBitext(parts={'fr-en': None, 'en-fr': None})
  )
  with raises_error(
    errors.ConfigError, got='fr-en, en-fr', where='bitext_mining'
  ):
    task.evaluate(eval_model)


@pytest.mark.parametrize(
  'languages, got',
  [
    ('en', "the text 'en' for 2 texts"),
    (['en'], '1 language code for 2 texts'),
    (['en'] * 3, '3 language codes for 2 texts'),
  ],
)
@pytest.mark.parametrize('method', ['vectors', 'layer_vectors', 'sides'])
def test_each_text_requires_a_language_code(eval_model, method, languages, got):
  task = mining_task.BitextMining(source=InMemoryBitext(parts={}))
  texts = ['the dog', 'the cat']
  arguments = {
    'vectors': (texts, languages, []),
    'layer_vectors': (texts, languages, [], 'en'),
    'sides': ([['en'] * 2, languages], [texts, texts], []),
  }[method]
  with raises_error(
    errors.ConfigError,
    got=got,
    expected='2 language codes',
    where='bitext_mining',
    fix="Pass one language code for each text, such as ['en'] * len(texts).",
    mentions='languages',
  ):
    getattr(task, method)(eval_model, *arguments)


def test_each_centered_vector_requires_a_language_code(eval_model):
  task = mining_task.BitextMining(source=InMemoryBitext(parts={}))
  with raises_error(
    errors.ConfigError,
    got="the text 'en' for 2 vectors",
    expected='2 language codes',
  ):
    task.center_vectors(eval_model, [(np.ones((2, 16)), 'en')], [])

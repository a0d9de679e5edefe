import dataclasses

import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, word_states
from xlflax.evaluation.tasks import word_alignment_task
from xlflax.similarity import word_links
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


@dataclasses.dataclass(frozen=True, kw_only=True)
class InMemoryAlignments(example_source.ExampleSource):
  """Aligned sentences in memory; parts without sentences raise an error."""

  parts: dict

  def languages(self):
    return tuple(self.parts)

  def load(self, part):
    if self.parts[part] is None:
      raise errors.CorpusError('This text is broken', where='x.txt:3')
    return self.parts[part]


def _aligned(number, first, second, links, possible=(), codes=('de', 'en')):
  return labeled_examples.AlignedSentence(
    id=str(number),
    language=codes[0],
    target_language=codes[1],
    source_words=tuple(first),
    target_words=tuple(second),
    sure=frozenset(links),
    possible=frozenset(links) | frozenset(possible),
  )


def _error_rate(predicted_links, pairs):
  """Returns 1 - (|A & S| + |A & P|) / (|A| + |S|) over all sentences."""
  right = sum(
    len(links & pair.sure) + len(links & pair.possible)
    for links, pair in zip(predicted_links, pairs, strict=True)
  )
  return 1 - right / sum(
    len(links) + len(pair.sure)
    for links, pair in zip(predicted_links, pairs, strict=True)
  )


@pytest.fixture
def identical():
  """Sentences of distinct words that are paired with themselves."""
  sentence_words = 'der Hund schläft und die kleine Katze'.split()
  return [
    _aligned(
      i,
      sentence_words[i : i + 4],
      sentence_words[i : i + 4],
      [(k, k) for k in range(4)],
      codes=('de', 'de'),
    )
    for i in range(4)
  ]


def test_identical_sentences_are_aligned_at_every_layer(eval_model, identical):
  task = word_alignment_task.WordAlignment(
    source=InMemoryAlignments(parts={'de-de': identical})
  )
  result = task.evaluate(eval_model)
  assert {
    row['aer']
    for row in result.tables['layers']
    if row['method'] != 'transport'
  } == {0}
  assert result.metrics['aer/de-de'] == result.metrics['aer/mean'] == 0
  assert result.metrics['precision/de-de'] == 1
  assert result.metrics['recall/de-de'] == 1
  assert result.files['de-de.argmax.txt'] == '0-0 1-1 2-2 3-3\n' * 4
  assert set(result.files) == {
    'de-de.argmax.txt',
    'de-de.transport.txt',
    'de-de.mutual_transport.txt',
    'de-de.examples',
  }


def test_layers_and_methods_equal_the_alignment_functions(
  eval_model, sentences
):
  pairs = [
    _aligned(i, x.split(), y.split(), [(0, 0), (1, 2)], [(0, 1)])
    for i, (x, y) in enumerate(
      zip(sentences('de', 6), sentences('en', 6), strict=True)
    )
  ]
  task = word_alignment_task.WordAlignment(
    source=InMemoryAlignments(parts={'de-en': pairs}),
    methods=('argmax', 'transport'),
    layer=1,
    entropic_reg=0.2,
    marginals='norm',
    threshold=0.3,
  )
  result = eval_task.evaluate_task(task, eval_model)
  assert result.layers == (1,)
  table = {
    (row['method'], row['layer']): row['aer'] for row in result.tables['layers']
  }
  assert len(table) == 6
  for method, layer in table:
    found_links, lines = [], []
    for pair in pairs:
      readings = sorted(
        word_states.word_states(
          eval_model,
          [pair.source_words, pair.target_words],
          [('de', 0), ('en', 1)],
        ),
        key=lambda reading: reading.sentence,
      )
      states = [reading.states[layer] for reading in readings]
      similarity = word_links.cosine_similarities(*states)
      plan = word_links.transport_plan(
        similarity,
        *(word_links.word_weights(side, 'norm') for side in states),
        regularization=0.2,
      )
      links = word_links.matrix_to_links(
        word_links.link_matrix(similarity, method, plan=plan, threshold=0.3)
      )
      found_links.append(links)
      lines.append(' '.join(f'{i}-{j}' for i, j in sorted(links)))
    assert table[method, layer] == pytest.approx(
      _error_rate(found_links, pairs)
    )
    if layer == 1:
      prefix = '' if method == 'argmax' else 'transport_'
      assert result.metrics[f'{prefix}aer/de-en'] == table[method, layer]
      assert result.files[f'de-en.{method}.txt'] == '\n'.join(lines) + '\n'
      by_layer = [table[method, i] for i in range(3)]
      assert result.metrics[f'{prefix}best_aer/de-en'] == min(by_layer)
      best = result.metrics[f'{prefix}best_layer/de-en']
      assert by_layer[best] == min(by_layer)


def test_failed_part_does_not_affect_other_parts(eval_model, identical):
  task = word_alignment_task.WordAlignment(
    source=InMemoryAlignments(
      parts={'ja-en': None, 'de-de': identical, 'en-de': []}
    )
  )
  result = task.evaluate(eval_model)
  assert result.metrics['aer/mean'] == result.metrics['aer/de-de']
  assert [(f.task, f.part) for f in result.failures] == [
    ('word_alignment', 'ja-en'),
    ('word_alignment', 'en-de'),
  ]
  assert_mentions(result.failures[0], 'x', 'x.txt:3')
  assert_mentions(result.failures[1], 'word_alignment')


def test_dropped_links_are_listed(eval_model, tmp_path):
  (tmp_path / 'text').write_text('der Hund ||| the dog\n')
  (tmp_path / 'links').write_text('0-0 1-1 7-1\n')
  dataset = example_source.FileDataset(
    format='word_alignment',
    files={'de-en': (str(tmp_path / 'text'), str(tmp_path / 'links'))},
  )
  result = word_alignment_task.WordAlignment(source=dataset).evaluate(
    eval_model
  )
  (problem,) = result.tables['problems']
  assert problem['part'] == 'de-en' and '7-1' in problem['problem']
  assert any('1 problems' in note for note in result.notes)


def test_truncated_and_unknown_sentences_are_noted(eval_model):
  long = [f'Hund{i}' for i in range(30)]
  pair = _aligned(0, long, ['dog'], [(0, 0), (29, 0)], codes=('tr', 'en'))
  empty = _aligned(1, [], ['dog'], [])
  task = word_alignment_task.WordAlignment(
    source=InMemoryAlignments(parts={'tr-en': [pair, empty]}),
    methods=('argmax',),
  )
  result = task.evaluate(eval_model)
  assert '1 sentence of tr-en was truncated' in result.notes
  assert any('the language tr;' in note for note in result.notes)
  assert result.metrics['recall/tr-en'] <= 0.5
  assert result.files['tr-en.argmax.txt'].endswith('\n\n')
  assert np.isfinite(result.metrics['aer/tr-en'])


def test_invalid_settings_are_rejected(eval_model, identical):
  source = InMemoryAlignments(parts={'de-de': identical})
  with raises_error(errors.ConfigError, mentions=('itermax', 'argmax')):
    word_alignment_task.WordAlignment(source=source, methods=('itermax',))
  with raises_error(errors.ConfigError, mentions='methods'):
    word_alignment_task.WordAlignment(source=source, methods=())
  task = word_alignment_task.WordAlignment(source=source, layer=3)
  (failure,) = eval_task.evaluate_task(task, eval_model).failures
  assert_mentions(failure, 3)
  assert eval_task.task_settings(
    dataclasses.replace(task, layer=1)
  ) != eval_task.task_settings(
    dataclasses.replace(task, layer=1, marginals='norm')
  )

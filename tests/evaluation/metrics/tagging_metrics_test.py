import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from seqeval import metrics as seqeval_metrics

from tests.errors import raises_error
from xlflax.evaluation.metrics import tagging_metrics
from xlflax.utils import errors

_TAGS = ('O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC')


def _sentences(seed, tags):
  random = np.random.default_rng(seed)
  sizes = random.integers(1, 12, 20)
  return [
    [random.choice(tags, size).tolist() for size in sizes] for _ in range(2)
  ]


def test_scores_computed_by_hand():
  gold = [['B-PER', 'I-PER', 'O', 'B-LOC'], ['O', 'B-LOC']]
  predicted = [['B-PER', 'I-PER', 'O', 'B-PER'], ['I-LOC', 'B-LOC']]
  scores = tagging_metrics.entity_scores(gold, predicted)
  assert scores.overall == tagging_metrics.TypeScores(
    precision=0.5, recall=2 / 3, f1=4 / 7, gold=3, predicted=4
  )
  assert scores.types['PER'].precision == 0.5
  assert scores.types['LOC'].recall == 0.5
  assert scores.statistics.rows.tolist() == [[1, 2, 2], [1, 2, 1]]
  assert scores.statistics.value == pytest.approx(4 / 7)


@pytest.mark.parametrize('seed', range(8))
def test_entity_scores_equal_seqeval(seed):
  gold, predicted = _sentences(seed, _TAGS)
  entity_score = tagging_metrics.entity_scores(gold, predicted)
  assert entity_score.overall.f1 == pytest.approx(
    seqeval_metrics.f1_score(gold, predicted)
  )
  assert entity_score.overall.precision == pytest.approx(
    seqeval_metrics.precision_score(gold, predicted)
  )
  report = seqeval_metrics.classification_report(
    gold, predicted, output_dict=True
  )
  for name, scores in entity_score.types.items():
    assert scores.f1 == pytest.approx(report[name]['f1-score'])
    assert scores.gold == report[name]['support']


def _conlleval_spans(tags):
  """Returns spans that start at B, after O, and where the type changes."""
  out, kind = [], None
  for position, tag in enumerate(tags):
    if tag == 'O':
      kind = None
    elif tag.startswith('B') or kind != tag[2:]:
      kind = tag[2:]
      out.append([kind, position, position])
    else:
      out[-1][2] = position
  return [tuple(span) for span in out]


@hypothesis.given(st.lists(st.sampled_from(_TAGS), max_size=10))
def test_spans_equal_a_plain_loop(tags):
  assert tagging_metrics.entity_spans(tags) == _conlleval_spans(tags)


@pytest.mark.parametrize(
  'tags, expected',
  [
    ('DET NOUN NOUN', [('DET', 0, 0), ('NOUN', 1, 2)]),
    ('SYM SYM SCONJ', [('SYM', 0, 0), ('SYM', 1, 1), ('SCONJ', 2, 2)]),
    ('NOUN O NOUN .', [('NOUN', 0, 0), ('NOUN', 2, 2)]),
    ('CCONJ SCONJ CCONJ', [('CCONJ', 0, 0), ('SCONJ', 1, 1), ('CCONJ', 2, 2)]),
    ('', []),
  ],
)
def test_tag_runs(tags, expected):
  """As in seqeval 0.0.12, the letter S is interpreted as a prefix."""
  assert tagging_metrics.tag_runs(tags.split()) == expected


def test_run_types_keep_their_first_letter():
  scores = tagging_metrics.run_scores(
    [['CCONJ', 'SCONJ']], [['SCONJ', 'SCONJ']]
  )
  assert set(scores.types) == {'CCONJ', 'SCONJ'}
  assert scores.overall.f1 == 0.5


def test_equal_adjacent_tags_form_one_span():
  gold = [['NOUN', 'NOUN', 'ADJ']]
  predicted = [['NOUN', 'ADJ', 'ADJ']]
  assert tagging_metrics.token_accuracy(gold, predicted).value == pytest.approx(
    2 / 3
  )
  assert tagging_metrics.run_scores(gold, predicted).overall.f1 == 0


def test_token_accuracy_averages_over_words():
  accuracy = tagging_metrics.token_accuracy(
    [['A'], ['A', 'B', 'B']], [['B'], ['A', 'B', 'B']]
  )
  assert accuracy.value == 0.75


@pytest.mark.parametrize(
  'before, after',
  [
    ('O I-PER O B-PER I-LOC I-ORG', 'O B-PER O B-ORG I-ORG I-ORG'),
    ('I-X', 'B-X'),
    ('B-X I-Y I-Z', 'B-Z I-Z I-Z'),
    ('I-X I-Y B-X B-Y I-Y', 'B-Y I-Y B-X B-Y I-Y'),
    ('O B-X I-X O', 'O B-X I-X O'),
    ('', ''),
  ],
)
def test_repair_iob2(before, after):
  assert tagging_metrics.repair_iob2(before.split()) == after.split()


@hypothesis.given(st.lists(st.sampled_from(_TAGS), max_size=10))
def test_repair_iob2_is_valid_and_idempotent(tags):
  fixed = tagging_metrics.repair_iob2(tags)
  assert tagging_metrics.repair_iob2(fixed) == fixed
  for before, after in zip(['O', *fixed], fixed, strict=False):
    assert not after.startswith('I-') or before[2:] == after[2:]
  assert [tag == 'O' for tag in fixed] == [tag == 'O' for tag in tags]


@pytest.mark.parametrize(
  'gold, predicted, values',
  [
    ([], [], 0),
    ([['O']], [], (0, 1)),
    ([['O'], ['O']], [['O'], ['O', 'O']], (1, 'sentence 2')),
    ([['O'], ['O']], [['O'], ['PER']], ('PER', 'sentence 2')),
    ([['B-']], [['O']], ('B-', 'sentence 1')),
  ],
)
def test_invalid_input_raises(gold, predicted, values):
  with raises_error(errors.CorpusError, mentions=values):
    tagging_metrics.entity_scores(gold, predicted)


def test_f1_without_entities_is_zero():
  assert tagging_metrics.entity_scores([['O']], [['O']]).overall.f1 == 0


def test_join_neighboring_entities_docstring_example():
  joined_tags = tagging_metrics.join_neighboring_entities(
    'B-time B-time O I-day'.split()
  )
  assert joined_tags == ['B-time', 'I-time', 'O', 'B-day']

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.evaluation.metrics import parsing_metrics
from xlflax.utils import errors

_GOLD = parsing_metrics.Tree(
  (2, 0, 2, 2),
  ('nmod:poss', 'root', 'obj', 'punct'),
  ('NOUN', 'VERB', 'NOUN', 'PUNCT'),
)
_GUESS = parsing_metrics.Tree((2, 0, 2, 3), ('nmod', 'root', 'nsubj', 'punct'))


def test_scores_computed_by_hand():
  scores = parsing_metrics.attachment_scores([_GOLD], [_GUESS])
  assert scores.uas.value == 0.75
  assert scores.las.value == 0.5  # Subtypes are ignored.
  assert not scores.exclude_punctuation
  without = parsing_metrics.attachment_scores(
    [_GOLD], [_GUESS], exclude_punctuation=True
  )
  assert without.uas.value == 1
  assert without.las.value == pytest.approx(2 / 3)


def test_scores_equal_a_double_loop():
  random = np.random.default_rng(0)
  names = np.array(['nsubj', 'obj', 'obl', 'obl:tmod', 'nsubj:pass'])
  trees = [
    [
      parsing_metrics.Tree(
        random.integers(0, 4, size), random.choice(names, size)
      )
      for size in (3, 1, 7)
    ]
    for _ in range(2)
  ]
  scores = parsing_metrics.attachment_scores(*trees)
  right = attached = num_words = 0
  for gold, guess in zip(*trees, strict=True):
    for i in range(len(gold.heads)):
      num_words += 1
      if gold.heads[i] == guess.heads[i]:
        attached += 1
        right += (
          gold.relations[i].partition(':')[0]
          == guess.relations[i].partition(':')[0]
        )
  assert 0 < right < attached < num_words
  assert scores.las.value == pytest.approx(right / num_words)
  assert scores.uas.value == pytest.approx(attached / num_words)


@pytest.mark.parametrize(
  'gold, guess, exclude, values',
  [
    ([], [], False, 0),
    ([_GOLD], [], False, (0, 1)),
    (
      [_GOLD],
      [parsing_metrics.Tree((0,), ('root',))],
      False,
      (4, 'sentence 1'),
    ),
    ([_GUESS], [_GUESS], True, 'sentence 1'),
  ],
)
def test_invalid_input_raises(gold, guess, exclude, values):
  with raises_error(errors.CorpusError, mentions=values):
    parsing_metrics.attachment_scores(gold, guess, exclude_punctuation=exclude)

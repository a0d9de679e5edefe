import pytest
import sacrebleu

from tests.errors import raises_error
from xlflax.evaluation.metrics import example_statistics, translation_metrics
from xlflax.utils import errors

_FOUND = [
  'The cat sat on the mat .',
  'It rains in the old town today',
  'a b',
  'Ein Haus, das steht.',
]
_RIGHT = [
  'The cat sat on a mat.',
  'It rains in the town today',
  'a b c',
  'Ein Haus, das noch steht.',
]


def test_scores_equal_sacrebleu():
  bleu_score = translation_metrics.bleu(_FOUND, [_RIGHT], target_language='de')
  assert bleu_score.value == pytest.approx(
    sacrebleu.corpus_bleu(_FOUND, [_RIGHT]).score
  )
  assert 'tok:13a|smooth:exp' in bleu_score.signature
  assert bleu_score.statistics.value == pytest.approx(bleu_score.value)
  chrf = translation_metrics.chrf(_FOUND, [_RIGHT])
  assert chrf.value == pytest.approx(
    sacrebleu.corpus_chrf(_FOUND, [_RIGHT]).score
  )
  assert len(chrf.statistics.rows) == 4
  chrf_plus_plus = translation_metrics.chrf(_FOUND, [_RIGHT], word_order=2)
  for metric in (chrf, chrf_plus_plus):
    assert metric.statistics.value == pytest.approx(metric.value)


@pytest.mark.parametrize(
  'hypotheses, right',
  [
    (['a b c d'], ['a b c d e f']),
    (['a b c d'], ['a x c d']),
    (['a b'], ['a b']),
    (['x y z w'], ['a b c d']),
    ([''], ['a b']),
    (['a b c d e', 'q'], ['a b c d e', 'r s']),
  ],
)
def test_statistics_reproduce_the_corpus_score(hypotheses, right):
  for score in (
    translation_metrics.bleu(hypotheses, [right], target_language='en'),
    translation_metrics.tokenized_bleu(
      hypotheses, [right], target_language='en'
    ),
  ):
    assert score.statistics.value == pytest.approx(score.value)


def test_best_of_two_references_counts():
  score = translation_metrics.bleu(
    ['a b c d'], [['a b x d'], ['a b c d']], target_language='en'
  )
  assert score.value == pytest.approx(100)


def test_tokenized_bleu_uses_moses_tokens():
  score = translation_metrics.tokenized_bleu(
    ['The well-known cat sat, then slept.'],
    [['the well-known cat sat , then slept .']],
    target_language='en',
  )
  assert score.value == pytest.approx(100)
  assert 'case:lc' in score.signature and 'moses:' in score.signature
  cased = translation_metrics.tokenized_bleu(
    ['A cat sat.'], [['a cat sat.']], target_language='en', lowercase=False
  )
  assert cased.value == 0  # 3 of 4 tokens, no 4-gram, no smoothing
  assert cased.statistics.aggregate is example_statistics.Aggregate.BLEU


@pytest.mark.parametrize(
  'language, tokenizer',
  [
    ('de', '13a'),
    ('zh', 'zh'),
    ('zh-Hant', 'zh'),
    ('cmn', 'zh'),
    ('th', 'char'),
    ('sw', '13a'),
  ],
)
def test_tokenizer_of_each_language(language, tokenizer):
  assert translation_metrics.tokenizer_for(language)[0] == tokenizer


def test_japanese_without_mecab_uses_characters(monkeypatch):
  monkeypatch.setattr(
    translation_metrics, '_is_installed', lambda name: name == 'char'
  )
  score = translation_metrics.bleu(
    ['私は行く'], [['私は行った']], target_language='ja'
  )
  assert 'tok:char' in score.signature
  assert 'ja-mecab is not installed' in score.notes[0]
  monkeypatch.setattr(translation_metrics, '_is_installed', lambda name: True)
  assert translation_metrics.tokenizer_for('ja') == ('ja-mecab', ())
  assert translation_metrics.tokenizer_for('ko') == ('ko-mecab', ())


def test_invalid_input_is_rejected():
  with raises_error(errors.CorpusError, got=0):
    translation_metrics.bleu([], [[]], target_language='de')
  with raises_error(errors.CorpusError, mentions=('references', 2, 1, 0)):
    translation_metrics.chrf(['a'], [['a'], []])
  with raises_error(errors.ConfigError, got='list'):
    translation_metrics.bleu(['a'], ['a'], target_language='de')
  with raises_error(
    errors.ConfigError, got='moses', mentions=('tokenizer', 'bleu')
  ):
    translation_metrics.bleu(
      ['a'], [['a']], target_language='de', tokenizer='moses'
    )
  with raises_error(
    errors.ConfigError, got='zh-Hans', mentions='tokenized_bleu'
  ):
    translation_metrics.tokenized_bleu(
      ['a'], [['a']], target_language='zh-Hans'
    )

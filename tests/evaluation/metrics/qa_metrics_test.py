import pytest

from tests.errors import raises_error
from xlflax.evaluation.metrics import qa_metrics
from xlflax.utils import errors


@pytest.mark.parametrize(
  'language, text, normal',
  [
    ('en', 'The “Cat”, a dog & an owl!', 'cat dog owl'),
    ('en', 'another theme', 'another theme'),
    ('es', '¡El niño y la niña!', 'niño y niña'),
    ('es', 'Unas casas, los años, una', 'casas años'),
    ('de', 'Die Straße „des“ Königs, einem', 'straße königs'),
    ('de', 'dasselbe Ding', 'dasselbe ding'),
    ('vi', 'Những cái bàn của tôi là', 'bàn tôi'),
    ('ar', 'الكتاب، الجديد؟', 'كتاب جديد'),
    ('ar', 'والكتاب', 'و كتاب'),
    ('hi', 'यह एक किताब है।', 'यह एक किताब है'),
    ('zh', '我爱“中国”，ABC 1990年。', '我 爱 中 国 abc 1990 年'),
  ],
)
def test_mlqa_normalization(language, text, normal):
  assert (
    qa_metrics.normalize_answer(text, rules='mlqa', language=language) == normal
  )


@pytest.mark.parametrize(
  'text, normal',
  [
    ('The cat, an owl; a-b', 'cat owl ab'),
    ('“cat”', '“cat”'),  # Only ASCII punctuation is removed.
    ('el niño', 'el niño'),
    ('我爱，中国', '我爱，中国'),
  ],
)
def test_squad_normalization_is_language_independent(text, normal):
  for language in ('en', 'es', 'zh', 'th'):
    assert qa_metrics.normalize_answer(text, language=language) == normal


@pytest.mark.parametrize(
  'language, predicted, gold, f1',
  [
    ('en', 'the red cat', 'a red dog', 0.5),
    ('zh', '中国人', '中国', 0.8),
    ('es', 'el gato rojo', 'gato', 2 / 3),
    ('hi', 'नई दिल्ली', 'दिल्ली', 2 / 3),
    ('ar', 'القاهرة', 'قاهرة', 1.0),
    ('vi', 'của Hà Nội', 'Hà Nội', 1.0),
    ('de', 'die rote Katze', 'Katze', 2 / 3),
  ],
)
def test_f1_computed_by_hand(language, predicted, gold, f1):
  assert qa_metrics.f1(
    predicted, gold, rules='mlqa', language=language
  ) == pytest.approx(f1)


def test_repeated_tokens_count_up_to_the_smaller_number():
  assert qa_metrics.f1('b b c', 'b b b') == pytest.approx(2 / 3)


def test_answers_of_articles_match_exactly_with_f1_zero():
  assert qa_metrics.exact_match('the', 'a') == 1
  assert qa_metrics.f1('the', 'a') == 0


def test_best_of_several_gold_answers_counts():
  scores = qa_metrics.answer_scores(
    {'1': ['x', 'red cat'], '2': ['dog'], '3': ['owl']},
    {'1': 'cat', '2': 'the dog'},
  )
  assert scores.f1.rows[:, 0].tolist() == pytest.approx([2 / 3, 1, 0])
  assert scores.exact_match.value == pytest.approx(1 / 3)
  assert scores.f1.value == pytest.approx(5 / 9)
  assert scores.ids == ('1', '2', '3')


@pytest.mark.parametrize(
  'gold, predicted, got',
  [({}, {}, 0), ({'1': []}, {'1': 'a'}, '1'), ({'1': ['a']}, {'2': 'a'}, '2')],
)
def test_invalid_input_raises(gold, predicted, got):
  with raises_error(errors.CorpusError, got=got):
    qa_metrics.answer_scores(gold, predicted)


def test_unknown_languages_and_rules_are_rejected():
  with raises_error(errors.ConfigError, got='ja', mentions=('en', 'es', 'de')):
    qa_metrics.normalize_answer('x', rules='mlqa', language='ja')
  with raises_error(
    errors.ConfigError, got='triviaqa', mentions=('squad', 'squad_v2', 'mlqa')
  ):
    qa_metrics.normalize_answer('x', rules='triviaqa')


@pytest.mark.parametrize(
  'predicted, answers, expected',
  [
    ('', [''], (1, 1)),
    ('the cat', [''], (0, 0)),
    ('', ['cat'], (0, 0)),
    # An answer of articles only counts as empty.
    ('the', ['cat', 'a'], (0, 0)),
    ('a cat', ['cat', 'the'], (1, 1)),
    ('!', ['.'], (1, 1)),
  ],
)
def test_squad_v2_scores_of_unanswerable_questions(
  predicted, answers, expected
):
  assert (
    qa_metrics.best_answer_scores(predicted, answers, rules='squad_v2')
    == expected
  )


def test_missing_predictions_are_skipped_only_by_squad_v2():
  """The script of v2 skips them, and that of v1.1 counts them as 0."""
  gold = {'a': ['x'], 'b': ['y'], 'c': ['']}
  scores = qa_metrics.answer_scores(
    gold, {'a': 'x', 'c': 'z'}, rules='squad_v2'
  )
  assert (scores.ids, scores.f1.value) == (('a', 'c'), 0.5)
  assert qa_metrics.answer_scores(gold, {'a': 'x'}).f1.value == pytest.approx(
    1 / 3
  )
  with raises_error(errors.CorpusError, got=0):
    qa_metrics.answer_scores(gold, {}, rules='squad_v2')

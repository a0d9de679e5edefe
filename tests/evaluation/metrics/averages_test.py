import numpy as np
import pytest

from xlflax.evaluation.metrics import averages


def _qa(f1, exact_match):
  return averages.macro_average([exact_match, f1])


@pytest.mark.parametrize(
  'xnli, pawsx, pos, ner, xquad, mlqa, tydiqa, bucc, tatoeba, published',
  [
    (
      65.4,
      81.9,
      70.3,
      62.2,
      (64.5, 49.4),
      (61.4, 44.2),
      (59.7, 43.9),
      56.7,
      38.7,
      59.6,
    ),  # mBERT
    (
      79.2,
      86.4,
      72.6,
      65.4,
      (76.6, 60.8),
      (71.6, 53.2),
      (65.1, 45.0),
      66.0,
      57.3,
      68.1,
    ),  # XLM-R
  ],
)
def test_averages_equal_xtreme_table_2(
  xnli, pawsx, pos, ner, xquad, mlqa, tydiqa, bucc, tatoeba, published
):
  scores = {
    'xnli': xnli,
    'pawsx': pawsx,
    'udpos': pos,
    'panx': ner,
    'xquad': _qa(*xquad),
    'mlqa': _qa(*mlqa),
    'tydiqa': _qa(*tydiqa),
    'bucc2018': bucc,
    'tatoeba': tatoeba,
  }
  means = averages.xtreme_average(scores | {'parsing': 1.0})
  assert round(means['all'], 1) == published
  assert means['retrieval'] == pytest.approx((bucc + tatoeba) / 2)
  del scores['bucc2018']
  means = averages.xtreme_average(scores)
  assert set(means) == {
    'classification',
    'structured prediction',
    'question answering',
  }


def test_xtreme_r_tasks_have_separate_averages():
  scores = {'xnli': 80.0, 'xcopa': 60.0, 'udpos': 70.0, 'pawsx': 90.0}
  assert averages.xtreme_average(scores) == {'R classification': 70}
  del scores['xcopa']
  assert averages.xtreme_average(scores) == {'classification': 85}


def test_transfer_gap():
  assert averages.transfer_gap({'en': 80, 'de': 70, 'sw': 50}) == 20
  assert averages.transfer_gap({'en': 80, 'de': 70}, source='de') == -10
  assert averages.transfer_gap({'en': 80}) is None
  assert averages.transfer_gap({'de': 80, 'fr': 1}) is None


def test_head_and_tail_averages_against_numpy():
  rng = np.random.default_rng(0)
  codes = np.array(['en', 'swh_Latn', 'sr', 'sr_Latn', 'kab', 'zho_Hant', 'yo'])
  is_head = np.array([True, True, True, False, False, True, False])
  scores = rng.uniform(0, 100, len(codes))
  head_tail = averages.head_tail_averages(
    dict(zip(codes, scores, strict=True)), ('en', 'sw', 'sr', 'zh_Hant', 'de')
  )
  assert head_tail == pytest.approx(
    {
      'head': np.mean(scores[is_head]),
      'tail': np.mean(scores[~is_head]),
      'all': np.mean(scores),
    }
  )


def test_a_mean_over_no_language_is_omitted():
  assert averages.head_tail_averages({'en': 50.0}, ('en',)) == {
    'head': 50.0,
    'all': 50.0,
  }

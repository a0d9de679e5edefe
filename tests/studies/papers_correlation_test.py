"""Tests of the correlation of CKA and sentence retrieval over layers."""

import math

import numpy as np
import pytest

from studies.papers import correlation

_CKA = [0.1, 0.5, 0.4, 0.9]
_ACCURACY = [0.2, 0.4, 0.6, 0.7]


def _rows(series, values, accuracy):
  name = {'series': series, 'pair': 'en-fr', 'step': '9'}
  cka, sentences = [], []
  for i, value in enumerate(values):
    for j in range(len(values)):
      row = {'first_layer': str(i), 'second_layer': str(j)}
      cka.append(name | row | {'cka': str(value if i == j else 0.3)})
    for mapping, factor in (('procrustes', 1), ('none', -1)):
      row = {'layer': str(i), 'mapping': mapping}
      sentences.append(name | row | {'accuracy': str(factor * accuracy[i])})
  return cka, sentences


def test_correlation_over_layers_equals_numpy():
  expected = np.corrcoef(_CKA, _ACCURACY)[0, 1]
  cka, sentences = _rows('a', _CKA, _ACCURACY)
  name = ('a', 'en-fr', '9')
  assert correlation.layer_correlations(cka, sentences) == {
    name: pytest.approx(expected)
  }
  correlations = correlation.layer_correlations(cka, sentences, mapping='none')
  assert correlations == {name: pytest.approx(-expected)}


def test_correlation_of_few_or_constant_values_is_undefined():
  assert correlation.layer_correlations(*_rows('a', _CKA[:2], _ACCURACY)) == {}
  correlations = correlation.layer_correlations(
    *_rows('a', [0.5] * 3, _ACCURACY)
  )
  assert all(map(math.isnan, correlations.values())) and len(correlations) == 1

"""Configurations of the papers that train the same step.

docs/measured/compiled_steps.md lists them. Only one of them is compiled for
GPUs.
"""

import re

import pytest

from tests.papers import rows
from xlflax.training import training_setup


def _trace_steps(paper, row):
  """Returns the text of each type of step, without addresses."""
  settings = rows.settings(paper, row)
  setup = training_setup.Setup(settings)
  texts = []
  with settings.partitioner.scope():
    for active in settings.objectives.groups:
      traced = setup.jitted_step(active).trace(
        setup.factory.abstract_sharded, setup.abstract_batches(active)
      )
      texts.append(re.sub(r'\b0x[0-9a-f]+', '', str(traced.jaxpr)))
  return texts


@pytest.mark.slow
@pytest.mark.parametrize(
  'paper, compiled, others',
  [
    ('metaxlm', 'xlm', ('metaxlm', 'dict', 'emb', 'body')),
    (
      'veco',
      'wmt14_en_de_random',
      ('wmt14_en_de_veco', 'wmt14_en_de_xlmr', 'wmt14_en_de_baseline_star'),
    ),
    ('veco', 'shallow_random_3', ('shallow_last_3',)),
    (
      'veco',
      'iwslt14_small_ca_mlm',
      (
        'iwslt14_small_ca_mlm_tlm',
        'iwslt14_small_mlm',
        'iwslt14_small_mlm_tlm',
      ),
    ),
    ('veco', 'iwslt14_small_mbart', ('iwslt14_small_mbart_tlm',)),
  ],
)
def test_different_initializations_train_the_same_step(paper, compiled, others):
  expected = _trace_steps(paper, compiled)
  for row in others:
    assert _trace_steps(paper, row) == expected, row


@pytest.mark.slow
@pytest.mark.parametrize('row', ['small_ca_mlm', 'small_mlm', 'small_mbart'])
def test_monolingual_rows_train_the_first_step_of_bilingual_rows(row):
  first, second = _trace_steps('veco', f'{row}_tlm')
  assert _trace_steps('veco', row) == [first] != [second]

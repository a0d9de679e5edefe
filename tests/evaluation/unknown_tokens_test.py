"""Tests of unknown tokens in evaluation text and of dependent metrics."""

import dataclasses

import pytest

from xlflax.data.corpus import corpus_directory
from xlflax.data.tokenizers import (
  base_vocabulary,
  vocabulary_spec,
  vocabulary_training,
)
from xlflax.evaluation import eval_task, unknown_tokens

pytest_plugins = ['tests.evaluation.fixtures']


def test_unknown_tokens_are_found():
  spec = vocabulary_spec.make_dummy_spec(40)
  mask = unknown_tokens.is_unknown([20, spec.unk_id, 21, spec.unk_id], spec)
  assert mask.tolist() == [False, True, False, True]
  assert unknown_tokens.is_unknown([], spec).tolist() == []


@pytest.mark.parametrize('role', ['pad_id', 'bos_id', 'eos_id', 'mask_id'])
def test_vocabulary_without_unknown_token_has_no_unknown_ids(role):
  spec = vocabulary_spec.make_dummy_spec(40)
  unk_id = getattr(spec, role)
  spec = dataclasses.replace(spec, unk_id=unk_id)
  assert not unknown_tokens.is_unknown([20, unk_id], spec).any()


def test_a_vocabulary_with_byte_fallback_has_no_unknown_tokens(
  corpus, tmp_path
):
  directory = tmp_path / 'vocabulary'
  vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(corpus),
    directory,
    size=400,
    model_type='bpe',
    byte_fallback=True,
    num_threads=1,
  )
  vocabulary = base_vocabulary.Vocabulary.load(directory)
  ids = vocabulary.encode('собака спит')
  assert not unknown_tokens.is_unknown(ids, vocabulary.spec).any()


def test_high_rates_include_only_parts_with_the_metric():
  results = [
    eval_task.EvalResult(
      metrics={
        'perplexity/de': 2.0,
        'unknown_rate/de': 0.01,
        'perplexity/ru': 3.0,
        'unknown_rate/ru': rate,
        'word_perplexity/ru': 4.0,
        'perplexity/ja': 3.0,
        'unknown_rate/ja': 0.5,
        'ndcg@10/ru': 0.5,
      }
    )
    for rate in (0.25, 0.5, 0.125)
  ]
  assert unknown_tokens.find_high_rates('perplexity', results) == {
    'ru': 0.5,
    'ja': 0.5,
  }
  assert unknown_tokens.find_high_rates('word_perplexity', results) == {
    'ru': 0.5
  }
  assert unknown_tokens.find_high_rates('ndcg@10', results) == {}
  assert unknown_tokens.find_high_rates('perplexity', []) == {}

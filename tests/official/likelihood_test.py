"""Compares pseudo-log-likelihoods of imported models with minicons."""

import sys
import types

import numpy as np
import pytest
import torch
import transformers

from tests.evaluation import one_hot_model
from tests.interop.huggingface import reference_tokenizers
from tests.official import scorers
from xlflax.data.supervised import labeled_examples
from xlflax.evaluation.tasks import pseudo_likelihood
from xlflax.interop.huggingface import huggingface_import
from xlflax.runs import loaded_run

pytestmark = pytest.mark.slow

_TEXTS = [
  'The cat sat on the mat.',
  'ein Mensch, ein Wort',
  'the dog ate 1,234 apples in 2021!',
  'unantastbar würdevolle Menschenliebe',
]
_CHOICES = ['the cat ate apples', 'Die Würde, ein Wort!']


@pytest.fixture(scope='module')
def scorer_class():
  """Scorer class of minicons, with fake modules for unused dependencies."""
  scorers.find_program('minicons', 'minicons', 'scorer.py')
  with pytest.MonkeyPatch.context() as patch:
    for name, members in (
      ('wonderwords', ('RandomSentence', 'RandomWord')),
      ('PIL', ('Image',)),
      ('PIL.Image', ('Image',)),
    ):
      if name not in sys.modules:
        module = types.ModuleType(name)
        for member in members:
          setattr(module, member, object)
        patch.setitem(sys.modules, name, module)
    patch.syspath_prepend(str(scorers.find_program('minicons')))
    from minicons import scorer

    yield scorer.MaskedLMScorer


@pytest.fixture(scope='module', params=['bert', 'xlmr', 'roberta'])
def model_pair(request, tmp_path_factory):
  """Folder and imported `EvalModel` of a tiny masked language model."""
  folder = tmp_path_factory.mktemp(request.param)
  options = {'do_lower_case': False} if request.param == 'bert' else {}
  tokenizer = getattr(reference_tokenizers, request.param)(folder, **options)
  tokenizer.save_pretrained(folder)
  kind = {'bert': 'Bert', 'xlmr': 'XLMRoberta', 'roberta': 'Roberta'}
  config = getattr(transformers, f'{kind[request.param]}Config')(
    vocab_size=len(tokenizer),
    hidden_size=20,
    num_hidden_layers=2,
    num_attention_heads=5,
    intermediate_size=40,
    max_position_embeddings=70,
    type_vocab_size=2 if request.param == 'bert' else 1,
    initializer_range=0.5,
    pad_token_id=tokenizer.pad_token_id,
    bos_token_id=tokenizer.cls_token_id,
    eos_token_id=tokenizer.sep_token_id,
  )
  torch.manual_seed(0)
  model = getattr(transformers, f'{kind[request.param]}ForMaskedLM')(config)
  model.save_pretrained(folder)
  ours = folder.parent / f'{request.param}_ours'
  huggingface_import.convert_import(
    huggingface_import.check_import(folder), ours
  )
  return str(folder), loaded_run.load_run(ours).eval_model()


@pytest.mark.parametrize(
  'hidden, metric', [('token', 'original'), ('word', 'within_word_l2r')]
)
def test_sentence_scores_equal_minicons(
  scorer_class, model_pair, hidden, metric
):
  folder, eval_model = model_pair
  theirs = scorer_class(folder, 'cpu')
  texts = _TEXTS
  if hidden == 'word' and 'roberta' in folder:
    # The pre-tokenizer of RoBERTa separates punctuation from words.
    texts = [''.join(c for c in t if c.isalpha() or c == ' ') for t in texts]
  scores = pseudo_likelihood.score_sentences(
    eval_model,
    eval_model.vocabulary.encode_batch(texts),
    [0] * len(texts),
    hidden=pseudo_likelihood.MaskUnit(hidden),
  )
  expected = theirs.sequence_score(
    texts, PLL_metric=metric, reduction=lambda x: x.sum().item()
  )
  np.testing.assert_allclose(-scores.sums[:, 0], expected, rtol=1e-4)
  lengths = [len(ids) - 2 for ids in theirs.tokenizer(texts)['input_ids']]
  assert scores.sums[:, 2].tolist() == lengths


def test_choice_scores_equal_minicons(scorer_class, model_pair):
  folder, eval_model = model_pair
  theirs = scorer_class(folder, 'cpu')
  examples = [
    labeled_examples.Choice(
      id=f'{text}{choice}',
      question=text,
      language='en',
      text=text,
      paired_text=choice,
    )
    for text in _TEXTS
    for choice in _CHOICES
  ]
  task = pseudo_likelihood.LikelihoodChoice(
    source=one_hot_model.Held(parts=(('en', examples),))
  )
  expected = theirs.conditional_score(
    [example.text for example in examples],
    [example.paired_text for example in examples],
    reduction=lambda x: x.sum().item(),
  )
  scores = task._score_choices(eval_model, 'en', examples, [])
  np.testing.assert_allclose(scores, expected, rtol=1e-4)

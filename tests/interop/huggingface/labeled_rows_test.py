"""Tests that compare sequences and predictions of labeled text with transformers."""

import json

import numpy as np
import pytest
import torch
import transformers

from tests.interop.huggingface import reference_tokenizers
from tests.interop.huggingface.tokenizers import tokenizer_reader_test
from xlflax import cli
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import (
  classification_featurizer,
  question_featurizer,
)
from xlflax.evaluation import eval_task, head_predictions
from xlflax.interop.huggingface import huggingface_import
from xlflax.training.checkpointing import saved_run

_LABELS = ('no', 'yes', 'unclear')
_TEXTS = [*dict.fromkeys(reference_tokenizers.LINES)]
_SIZES = dict(
  hidden_size=16,
  num_hidden_layers=1,
  num_attention_heads=2,
  intermediate_size=24,
  max_position_embeddings=50,
  num_labels=3,
)
_MODELS = {
  'xlm-roberta': ('XLMRoberta', 'xlmr', dict(type_vocab_size=1)),
  'bert_cased': ('Bert', 'bert', dict(type_vocab_size=2)),
}


@pytest.fixture(scope='module', params=_MODELS)
def pair(request, tmp_path_factory):
  """Fixture with a tokenizer, a classifier, its run and its separator."""
  kind, separator, options = _MODELS[request.param]
  folder = tmp_path_factory.mktemp(request.param)
  tokenizer = tokenizer_reader_test._KINDS[request.param][1](folder)
  torch.manual_seed(0)
  model = getattr(transformers, f'{kind}ForSequenceClassification')(
    getattr(transformers, f'{kind}Config')(
      vocab_size=len(tokenizer),
      pad_token_id=tokenizer.pad_token_id,
      id2label=dict(enumerate(_LABELS)),
      **_SIZES,
      **options,
    )
  ).eval()
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.mul_(5)
  model.save_pretrained(folder / 'hf')
  tokenizer.save_pretrained(folder / 'hf')
  huggingface_import.convert_import(
    huggingface_import.check_import(folder / 'hf'), folder / 'ours'
  )
  return tokenizer, model, saved_run.load_run(folder / 'ours'), separator


def test_logits_of_text_pairs_equal_transformers(pair):
  """Compares the token ids, and the logits computed from them."""
  tokenizer, model, run, separator = pair
  objective = run.objectives['sequence_classification']
  assert objective.labels == _LABELS
  texts = [
    labeled_examples.ClassifiedText(
      id=str(i),
      language='en',
      text=text,
      paired_text=_TEXTS[-i] if i % 3 else None,
    )
    for i, text in enumerate(_TEXTS)
  ]
  maker = classification_featurizer.ClassificationFeaturizer(
    labels=_LABELS, separator=separator
  )
  rows = maker.text_rows(texts, run.vocabulary, length=48)
  eval_model = eval_task.EvalModel(
    model=run.model,
    params=run.restore_params(0),
    batch_size=4,
    vocabulary=run.vocabulary,
    objectives=run.objectives,
  )
  logits_by_row = dict(
    head_predictions.predict_rows(
      eval_model, objective, rows, maker, max_length=48
    )
  )
  compared = 0
  for i, example in enumerate(texts):
    tokens = tokenizer(example.text, example.paired_text, return_tensors='pt')
    if tokens['input_ids'].shape[1] > 48:
      continue
    assert rows[i]['token_ids'].tolist() == tokens['input_ids'][0].tolist()
    with torch.no_grad():
      want = model(**tokens).logits[0].numpy()
    np.testing.assert_allclose(logits_by_row[i], want, atol=2e-4)
    compared += 1
  assert compared > 4


@pytest.mark.parametrize(('length', 'overlap'), [(30, 0), (40, 10)])
def test_question_answering_windows_equal_transformers(pair, length, overlap):
  tokenizer, _, run, separator = pair
  contexts = [' '.join(_TEXTS[i : i + 3]) for i in range(4)]
  special = tokenizer.num_special_tokens_to_add(pair=True)
  compared = 0
  for context in contexts:
    question = 'the dog'
    size = len(tokenizer(question, add_special_tokens=False)['input_ids'])
    maker = question_featurizer.QuestionAnsweringFeaturizer(
      doc_stride=length - special - size - overlap, separator=separator
    )
    (windows,) = maker.windows(
      [
        labeled_examples.Question(
          id='q', language='en', question=question, context=context
        )
      ],
      run.vocabulary,
      length=length,
    )
    expected = tokenizer(
      question,
      context,
      truncation='only_second',
      max_length=length,
      stride=overlap,
      return_overflowing_tokens=True,
      return_offsets_mapping=True,
    )
    assert [w.row['token_ids'].tolist() for w in windows] == (
      expected['input_ids']
    )
    for number, window in enumerate(windows):
      inside = [
        i for i, which in enumerate(expected.sequence_ids(number)) if which == 1
      ]
      assert np.flatnonzero(window.row['context_mask']).tolist() == inside
      for i in inside:
        start, end = window.characters(i, i)
        span_start, right = expected['offset_mapping'][number][i]
        if start < end:
          assert context[start:end] == context[span_start:right].strip()
          compared += 1
  assert compared > 50


def test_imported_classifier_can_be_evaluated(pair, tmp_path):
  run, separator = pair[2:]
  path = tmp_path / 'en.tsv'
  path.write_text(''.join(f'{text}\t{text}\tyes\n' for text in _TEXTS))
  assert (
    cli.main(
      [
        'evaluate',
        f'--model_dir={run.directory}',
        '--gin_file=evaluate/classification.gin',
        f'--gin.TEST_FILES={{"en": {str(path)!r}}}',
      ]
    )
    == 0
  )
  (file,) = run.directory.glob('eval/classification/*/0.json')
  assert json.loads(file.read_text())['inputs']['separator'] == separator
  (file,) = run.directory.glob('eval/classification/*/0/en.tsv')
  predicted = file.read_text()
  assert len(predicted.splitlines()) == len(_TEXTS)
  assert set(predicted.split()) <= set(_LABELS)

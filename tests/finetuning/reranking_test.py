"""Tests of training, evaluating and exporting a reranker with commands."""

import importlib.util
import json

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from tests.interop.huggingface.huggingface_export_test import run_of
from xlflax import cli, load_run
from xlflax.evaluation import result_store
from xlflax.objectives.finetuning import reranking
from xlflax.training.checkpointing import saved_run

pytest_plugins = ['tests.evaluation.fixtures']
__all__ = ['run_of']

_LENGTH = 48


@pytest.fixture(scope='module')
def lines(sentences):
  """Queries whose relevant documents contain the word `Hund`."""
  texts = sentences('de', 60)
  relevant = [text for text in texts if 'Hund' in text]
  other_texts = [text for text in texts if 'Hund' not in text]
  count = min(len(relevant), len(other_texts) // 2)
  return [
    {
      'query': f'{texts[index]} ?',
      'positive': relevant[index],
      'negatives': other_texts[2 * index : 2 * index + 2],
      'scores': [4, -2, -3],
    }
    for index in range(count)
  ]


@pytest.fixture
def pretrained(run_of):
  directory, *_ = run_of(
    type_vocab_size=1, position_offset=1, max_position_embeddings=64
  )
  return directory


def _train(pretrained, lines, directory, *flags):
  data = directory.parent / 'train.jsonl'
  data.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  files = {'de': str(data)}
  command = [
    'train',
    f'--model_dir={directory}',
    f'--gin.INIT_FROM="{pretrained}"',
    f'--gin.TRAIN_FILES={files}',
    '--gin.EPOCHS=None',
    '--gin.DOCUMENTS=3',
    f'--gin.LENGTH={_LENGTH}',
    '--gin.LEARNING_RATE=3e-3',
    *flags,
  ]
  assert cli.main(command) == 0


def _write_data(folder, lines):
  """Writes the lines as queries with candidates, the positive document last."""
  part = folder / 'de'
  part.mkdir(parents=True)
  queries, documents, relevance, candidates = [], [], [], []
  for index, line in enumerate(lines):
    texts = [*line['negatives'], line['positive']]
    queries.append(f'q{index}\t{line["query"]}')
    documents += [f'd{index}.{i}\t{text}' for i, text in enumerate(texts)]
    relevance.append(f'q{index} 0 d{index}.{len(texts) - 1} 1')
    candidates += [f'q{index} d{index}.{i}' for i in range(len(texts))]
  for name, rows in (
    ('queries', queries),
    ('documents', documents),
    ('relevance', relevance),
    ('candidates', candidates),
  ):
    (part / f'{name}.tsv').write_text('\n'.join(rows) + '\n')


def _read_metrics(directory):
  """Returns the stored metrics of the last checkpoint."""
  (results,) = result_store.find_results(directory, 'reranking').values()
  result = results[max(results)]
  assert not result.failures
  return result.metrics


def _compare_with_cross_encoder(folder, run, pairs, lines):
  """Compares scores and a loss with those of Sentence-Transformers."""
  import sentence_transformers
  from sentence_transformers.cross_encoder import losses

  scores = run.score_pairs(pairs)
  cross_encoder = sentence_transformers.CrossEncoder(str(folder), device='cpu')
  np.testing.assert_allclose(scores, cross_encoder.predict(pairs), atol=2e-5)

  # The loss of the exported reranker is that of Sentence-Transformers.
  texts = [[line['positive'], *line['negatives']] for line in lines[:3]]
  targets = [line['scores'] for line in lines[:3]]
  objective = reranking.Reranking(
    group_size=3, loss=reranking.RerankingLoss.MARGIN_MSE
  )
  group_scores = run.score_pairs(
    [
      (line['query'], text)
      for line, documents in zip(lines, texts, strict=False)
      for text in documents
    ]
  )
  group_losses = objective.group_losses(
    jnp.asarray(group_scores.reshape(3, 3)), jnp.asarray(targets, jnp.float32)
  )
  columns = [
    [line['query'] for line in lines[:3]],
    *map(list, zip(*texts, strict=True)),
  ]
  cross_encoder.eval()
  with torch.no_grad():
    expected = losses.MarginMSELoss(cross_encoder)(
      columns, torch.tensor(targets, dtype=torch.float32)
    )
  np.testing.assert_allclose(
    group_losses.loss.mean(), expected.item(), rtol=1e-4
  )


@pytest.mark.slow
def test_a_reranker_is_trained_evaluated_and_exported(
  pretrained, lines, tmp_path
):
  _write_data(tmp_path / 'data', lines)
  directory = tmp_path / 'reranker'
  _train(
    pretrained,
    lines,
    directory,
    '--gin_file=finetune/reranking.gin',
    '--gin.TRAIN_STEPS=80',
    '--gin.BATCH_SIZE=24',
    f'--gin.DEV_FOLDER="{tmp_path / "data"}"',
    '--gin.EVALUATION=@during_training.Evaluation()',
    '--gin.EVAL_STEPS=40',
  )
  arguments = [
    'evaluate',
    f'--model_dir={directory}',
    f'--corpus={tmp_path / "data"}',
  ]
  assert cli.main([*arguments, '--gin_file=evaluate/reranking.gin']) == 0
  # The result is already stored.
  assert cli.main([*arguments, '--tasks=reranking']) == 0
  metrics = _read_metrics(directory)
  assert metrics['first_stage_mrr@10/de'] == pytest.approx(1 / 3)
  assert metrics['mrr@10/de'] > 0.9
  assert metrics['candidate_recall/de'] == 1

  folder = tmp_path / 'exported'
  assert (
    cli.main(['convert', 'to-hf', str(directory), f'--output={folder}']) == 0
  )
  config = json.loads((folder / 'config.json').read_text())
  assert config['architectures'] == ['RobertaForSequenceClassification']
  assert list(config['id2label']) == ['0']
  card = (folder / 'README.md').read_text()
  assert 'pipeline_tag: text-ranking' in card
  assert '"type": "ndcg@10"' in card

  long_text = ' '.join(line['positive'] for line in lines)
  pairs = [(line['query'], line['positive']) for line in lines[:2]]
  pairs += [(line['query'], line['negatives'][0]) for line in lines[:2]]
  pairs += [(lines[0]['query'], long_text), (long_text, long_text)]
  scores = load_run(str(directory)).score_pairs(pairs)
  assert scores.shape == (6,) and np.ptp(scores) > 0.01

  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  model = transformers.AutoModelForSequenceClassification.from_pretrained(
    folder
  ).eval()
  inputs = tokenizer(pairs, truncation=True, padding=True, return_tensors='pt')
  assert inputs['input_ids'].shape[1] == _LENGTH
  with torch.no_grad():
    logits = model(**inputs).logits
  assert logits.shape == (6, 1)
  np.testing.assert_allclose(scores, logits[:, 0], atol=2e-5)

  # The exported reranker scores the same after it is imported.
  imported = tmp_path / 'imported'
  assert (
    cli.main(['convert', 'from-hf', str(folder), f'--output={imported}']) == 0
  )
  np.testing.assert_allclose(
    load_run(str(imported)).score_pairs(pairs), scores, atol=2e-5
  )
  arguments[1] = f'--model_dir={imported}'
  assert cli.main([*arguments, '--tasks=reranking']) == 0
  assert _read_metrics(imported)['mrr@10/de'] == metrics['mrr@10/de']

  if importlib.util.find_spec('sentence_transformers') is not None:
    _compare_with_cross_encoder(folder, load_run(str(directory)), pairs, lines)


@pytest.mark.slow
def test_a_regression_model_is_exported_with_one_label(
  pretrained, lines, tmp_path
):
  pairs = [
    (line['query'], text)
    for line in lines
    for text in (line['positive'], *line['negatives'])
  ]
  rows = [
    f'{text}\t{paired_text}\t{5.0 if "Hund" in paired_text else 0.0}\n'
    for text, paired_text in pairs
  ]
  (tmp_path / 'train.tsv').write_text(''.join(rows))
  files = {'de': str(tmp_path / 'train.tsv')}
  directory, folder = tmp_path / 'regression', tmp_path / 'exported'
  command = [
    *('train', '--gin_file=finetune/regression.gin'),
    f'--model_dir={directory}',
    f'--gin.INIT_FROM="{pretrained}"',
    f'--gin.TRAIN_FILES={files}',
    f'--gin.DEV_FILES={files}',
    '--gin.EVALUATION=@during_training.Evaluation()',
    *('--gin.EPOCHS=None', '--gin.TRAIN_STEPS=20', '--gin.BATCH_SIZE=8'),
    *(f'--gin.LENGTH={_LENGTH}', '--gin.LEARNING_RATE=3e-3'),
  ]
  assert cli.main(command) == 0
  command = ['convert', 'to-hf', str(directory), f'--output={folder}']
  assert cli.main(command) == 0

  long_text = ' '.join(line['positive'] for line in lines)
  scored = [*pairs[:4], (pairs[0][0], long_text)]
  scores = load_run(str(directory)).score_pairs(scored)
  # The sigmoid of these scores differs from the scores.
  assert np.ptp(scores) > 0.01 and scores.max() > 1
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  model = transformers.AutoModelForSequenceClassification.from_pretrained(
    folder
  ).eval()
  inputs = tokenizer(scored, truncation=True, padding=True, return_tensors='pt')
  assert inputs['input_ids'].shape[1] == _LENGTH
  with torch.no_grad():
    logits = model(**inputs).logits
  assert logits.shape == (5, 1)
  np.testing.assert_allclose(scores, logits[:, 0], atol=2e-5)
  config = json.loads((folder / 'config.json').read_text())
  assert config['sentence_transformers']['activation_fn'].endswith('Identity')
  if importlib.util.find_spec('sentence_transformers') is not None:
    import sentence_transformers

    cross_encoder = sentence_transformers.CrossEncoder(
      str(folder), device='cpu'
    )
    np.testing.assert_allclose(scores, cross_encoder.predict(scored), atol=2e-5)


@pytest.mark.slow
def test_teacher_margins_are_learned(pretrained, lines, tmp_path):
  directory = tmp_path / 'distilled'
  _train(
    pretrained,
    lines,
    directory,
    '--gin_file=finetune/reranking_distillation.gin',
    '--gin.TRAIN_STEPS=120',
    '--gin.BATCH_SIZE=24',
  )
  run = load_run(str(directory))
  texts = [[line['positive'], *line['negatives']] for line in lines]
  pairs = [
    (line['query'], text)
    for line, documents in zip(lines, texts, strict=True)
    for text in documents
  ]
  scores = run.score_pairs(pairs).reshape(-1, 3)
  margins = scores[:, :1] - scores[:, 1:]
  error = np.square(margins - [6, 7]).mean()
  assert error < 0.5 * (6**2 + 7**2) / 2  # Error of equal scores.
  (objective,) = saved_run.load_run(directory).objectives.values()
  assert objective.loss.value == 'margin_mse'

  # Rerank the documents that the pretrained encoder finds.
  _write_data(tmp_path / 'data', lines)
  (tmp_path / 'data/de/candidates.tsv').unlink()
  corpus = f'--corpus={tmp_path / "data"}'
  assert (
    cli.main(
      ['evaluate', f'--model_dir={pretrained}', '--tasks=ranking', corpus]
    )
    == 0
  )
  (ranking,) = pretrained.glob('eval/ranking/*/*/de.tsv')
  assert (
    cli.main(
      [
        'evaluate',
        f'--model_dir={directory}',
        '--gin_file=evaluate/reranking.gin',
        corpus,
        f'--gin.FIRST_STAGE="{ranking.parent}"',
        '--gin.TOP_K=5',
      ]
    )
    == 0
  )
  (expected,) = result_store.find_results(pretrained, 'ranking').values()
  metrics = _read_metrics(directory)
  for metric in ('ndcg@10', 'mrr@10'):
    assert metrics[f'first_stage_{metric}/de'] == pytest.approx(
      expected[3].metrics[f'{metric}/de']
    )

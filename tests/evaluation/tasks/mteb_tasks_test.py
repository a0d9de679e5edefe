"""Tests of tasks on frozen vectors, for which equal texts are nearest."""

import dataclasses
import json

import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from tests.evaluation import one_hot_model
from xlflax import cli
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import beir
from xlflax.evaluation import result_store
from xlflax.evaluation.tasks import mteb_tasks
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']

_TEXTS = ('der Hund', 'die kleine Katze', 'und', 'warme Milch')


def _pairs(*rows):
  return tuple(
    labeled_examples.RatedPair(
      id=str(i), language='de', text=a, paired_text=b, score=score
    )
    for i, (a, b, score) in enumerate(rows)
  )


def _held(part, examples):
  return one_hot_model.Held(parts=((part, examples),))


def test_similarity_of_text_pairs(eval_model):
  examples = _pairs(
    ('und', 'und', 1.0),
    ('der Hund', 'der Hund', 1.0),
    ('der Hund', 'warme Milch', 0.0),
    ('die kleine Katze', 'und', 0.0),
    ('und', 'der Hund', None),
  )
  result = mteb_tasks.PairClassification(source=_held('de', examples)).evaluate(
    eval_model
  )
  assert result.metrics['average_precision/de'] == 1
  assert result.metrics['positive/mean'] == 0.5 and not result.failures
  result = mteb_tasks.SemanticSimilarity(source=_held('de', examples)).evaluate(
    eval_model
  )
  assert 0.8 < result.metrics['spearman/mean'] <= 1
  assert set(result.metrics) == {
    f'{name}/{part}'
    for name in ('spearman', 'pearson')
    for part in ('de', 'mean')
  }


def test_pairs_are_centered_only_if_requested(eval_model):
  """By default, pairs are not centered, because single pairs have no test set."""
  examples = _pairs(*((a, b, 1.0) for a in _TEXTS for b in _TEXTS if a != b))
  plain, centered_task = (
    mteb_tasks.SemanticSimilarity(source=_held('de', examples), **settings)
    for settings in ({}, {'centering': 'language'})
  )
  notes = []
  first, second = (
    plain.vectors(eval_model, texts, ['de'] * len(examples), notes)
    for texts in (
      [example.text for example in examples],
      [example.paired_text for example in examples],
    )
  )
  for task, sides in (
    (plain, (first, second)),
    (centered_task, (first - first.mean(0), second - second.mean(0))),
  ):
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in sides]
    np.testing.assert_allclose(
      mteb_tasks.pair_cosines(task, eval_model, examples, notes),
      (units[0] * units[1]).sum(1),
      atol=1e-5,
    )


def test_clustering(eval_model):
  examples = tuple(
    labeled_examples.ClassifiedText(
      id=str(i), language='de', text=text, label=text
    )
    for i, text in enumerate(_TEXTS * 3)
  )
  task = mteb_tasks.Clustering(source=_held('de', examples))
  assert task.evaluate(eval_model).metrics['v_measure/de'] == pytest.approx(1)


def _classified(count, label):
  return tuple(
    labeled_examples.ClassifiedText(
      id=str(i), language='de', text=f'{text} {i % 7}', label=label(text)
    )
    for i, text in enumerate(_TEXTS * (count // 4))
  )


def test_probes_score_all_layers(eval_model):
  train = _classified(40, lambda text: text[0])
  test = _classified(24, lambda text: text[0])
  task = mteb_tasks.Probe(
    train=_held('de', train), source=_held('de', test), num_neighbors=3
  )
  result = task.evaluate(eval_model)
  assert not result.failures
  rows = result.tables['layers']
  assert [(row['layer'], row['method']) for row in rows] == [
    (layer, kind) for layer in range(3) for kind in ('linear', 'k-NN')
  ]
  for row in rows:
    assert 0 <= row['low'] <= row['accuracy'] <= row['high'] <= 1
    assert (row['examples'], row['trained_on']) == (24, 40)
    assert row['chance'] == result.metrics['majority/de'] == 0.5
  assert rows[4]['accuracy'] == result.metrics['accuracy/de'] > 0.9
  assert result.metrics['knn/mean'] == rows[5]['accuracy'] > 0.9
  first = dataclasses.replace(task, layer=0).evaluate(eval_model)
  assert first.metrics['accuracy/de'] == rows[0]['accuracy']
  assert task.evaluate(eval_model) == result  # The sample is the same.


def test_probe_command(make_run, tmp_path):
  run = make_run(tmp_path / 'run', steps=(1,))
  for name, count in (('train', 16), ('test', 8)):
    (tmp_path / name).write_text(
      ''.join(
        f'{text} {i}\t{text[0]}\n' for i, text in enumerate(_TEXTS * count)
      )
    )
  files = {x: str({'de': str(tmp_path / x)}) for x in ('train', 'test')}
  arguments = [
    f'--model_dir={run}',
    '--gin_file=evaluate/probe.gin',
    f'--gin.TRAIN_FILES={files["train"]}',
    f'--gin.TEST_FILES={files["test"]}',
    '--gin.mteb_tasks.Probe.penalty=10.0',
  ]
  assert cli.main(['evaluate', *arguments]) == 0
  assert list((run / 'eval').glob('probe*.layers.png'))
  ((result,),) = (x.values() for x in result_store.find_results(run).values())
  row = result.tables['layers'][-1]
  assert row['low'] <= row['accuracy'] <= row['high'] and row['examples'] == 32


@pytest.mark.slow
def test_clustering_command_reads_text_and_class(make_run, tmp_path):
  run = make_run(tmp_path / 'run', steps=(1,))
  lines = [f'{text}\t{text[0]}\n' for text in _TEXTS[1:] * 8]
  (tmp_path / 'test.tsv').write_text(''.join(lines))
  arguments = [
    f'--model_dir={run}',
    '--gin_file=evaluate/clustering.gin',
    f'--gin.TEST_FILES={ {"de": str(tmp_path / "test.tsv")} }',
  ]
  assert cli.main(['evaluate', *arguments]) == 0
  ((result,),) = (x.values() for x in result_store.find_results(run).values())
  assert not result.failures
  # The texts of a class are equal, so k-means recovers the classes.
  assert result.metrics['v_measure/de'] == pytest.approx(1)


def test_probes_of_random_labels_are_at_chance(eval_model):
  flips = np.random.default_rng(0).integers(2, size=400).astype(str).tolist()
  accuracies = [
    _classified(count, lambda _: flips.pop()) for count in (160, 120)
  ]
  result = mteb_tasks.Probe(
    train=_held('de', accuracies[0]), source=_held('de', accuracies[1])
  ).evaluate(eval_model)
  for row in result.tables['layers']:
    assert row['low'] < 0.55 and row['high'] > 0.45


def test_probes_reject_pairs_and_note_unknown_classes(eval_model):
  train = _classified(8, lambda text: text[0])
  pairs = tuple(
    dataclasses.replace(example, paired_text='und') for example in train
  )
  task = mteb_tasks.Probe(train=_held('de', train), source=_held('de', pairs))
  (failure,) = task.evaluate(eval_model).failures
  assert_mentions(failure.message, 'pairs', 'de')
  blind = tuple(dataclasses.replace(example, label=None) for example in train)
  without = dataclasses.replace(task, source=_held('de', blind))
  (failure,) = without.evaluate(eval_model).failures
  assert_mentions(failure.message, 'no texts', 'de')
  other = (dataclasses.replace(train[0], label='x'), *train[1:])
  result = dataclasses.replace(task, source=_held('de', other)).evaluate(
    eval_model
  )
  assert any('not seen in training' in note for note in result.notes)
  assert result.metrics['knn/de'] <= 7 / 8


def test_probes_subtract_the_language_mean(eval_model):
  train = _classified(8, lambda text: text[0])
  task = mteb_tasks.Probe(
    train=_held('de', train), source=_held('de', train), centering='language'
  )
  notes = task.evaluate(eval_model).notes
  assert any('the mean of its language is subtracted' in note for note in notes)


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'de').mkdir()
  for name, text in {
    'queries.tsv': 'q1\tder Hund\nq2\tund\nq3\twarme Milch\n',
    'documents.jsonl': ''.join(
      f'{{"_id": "d{i}", "title": "", "text": "{text}", "language": "de"}}\n'
      for i, text in enumerate(_TEXTS)
    ),
    'relevance.tsv': 'q1 0 d0 1\nq2 0 d2 1\nq2 0 d1 0\nq3 0 d0 1\n',
  }.items():
    (tmp_path / 'de' / name).write_text(text)
  return tmp_path


def test_ranking(eval_model, folder):
  task = mteb_tasks.Ranking(source=beir.BeirDataset(directory=str(folder)))
  result = task.evaluate(eval_model)
  lines = [line.split() for line in result.files['de.tsv'].splitlines()]
  assert [line[2] for line in lines if line[3] == '1'] == ['d0', 'd2', 'd3']
  rank = next(int(x[3]) for x in lines if x[0] == 'q3' and x[2] == 'd0')
  assert result.metrics['mrr@20/de'] == pytest.approx((2 + 1 / rank) / 3)
  assert result.metrics['ndcg@10/mean'] == pytest.approx(
    (2 + 1 / np.log2(rank + 1)) / 3
  )
  assert result.metrics['recall@100/de'] == 1
  (folder / 'de' / 'candidates.tsv').write_text('q1 d1\nq2 d2\nq3 d0\n')
  reranked = task.evaluate(eval_model)
  assert reranked.metrics['mrr@20/de'] == pytest.approx(2 / 3)
  assert task.source.fingerprint() != dataclasses.replace(
    task.source, splits=('de',), directory=str(folder / 'de')
  )


def test_equal_documents_are_ranked_as_in_trec_eval(eval_model, folder):
  """Ties are sorted by descending id, independent of the file order."""
  names = ('d2', 'd10', 'd1', 'd0')
  (folder / 'de' / 'documents.jsonl').write_text(
    ''.join(f'{{"_id": "{name}", "text": "und"}}\n' for name in names)
  )
  task = mteb_tasks.Ranking(source=beir.BeirDataset(directory=str(folder)))
  result = task.evaluate(eval_model)
  lines = [line.split() for line in result.files['de.tsv'].splitlines()]
  assert [line[2] for line in lines if line[0] == 'q2'] == sorted(names)[::-1]
  assert len({line[4] for line in lines if line[0] == 'q2'}) == 1
  assert result.metrics['mrr@20/de'] == pytest.approx((1 / 4 + 1 + 1 / 4) / 3)


def test_queries_of_many_languages_are_scored_by_language(eval_model, folder):
  (folder / 'de').rename(folder / 'all')
  texts = (('q1', 'der Hund', 'de'), ('q2', 'und', 'fr'), ('q3', 'warme', 'de'))
  (folder / 'all' / 'queries.jsonl').write_text(
    ''.join(
      json.dumps({'_id': name, 'text': text, 'language': language}) + '\n'
      for name, text, language in texts
    )
  )
  task = mteb_tasks.Ranking(source=beir.BeirDataset(directory=str(folder)))
  metrics = task.evaluate(eval_model).metrics
  assert metrics['mrr@20/fr'] == 1 and metrics['mrr@20/de'] < 1
  assert metrics['mrr@20/mean'] == (1 + metrics['mrr@20/de']) / 2


def test_beir_format_is_read(folder):
  (folder / 'de' / 'relevance.tsv').write_text(
    'query-id\tcorpus-id\tscore\nq1\td0\t2\n'
  )
  held = beir.BeirDataset(directory=str(folder)).load('de')
  assert held.relevance == {'q1': {'d0': 2.0}}
  assert held.documents['d2'] == beir.Text('und', 'de')


@pytest.mark.parametrize(
  'name, text, values',
  [
    ('relevance.tsv', 'q1 0 d9 1\n', ('d9', 'de')),
    ('relevance.tsv', 'a 0 b 1\nq1 d0\n', ('q1 d0', 'relevance.tsv:2')),
    ('queries.tsv', 'q1\tx\nq1\ty\n', ('q1', 'id', 'y', 'queries.tsv:2')),
    ('documents.jsonl', '{"_id": "d"}\n', ('d', 'id', 'documents.jsonl:1')),
  ],
)
def test_malformed_rankings_are_rejected(folder, name, text, values):
  (folder / 'de' / name).write_text(text)
  with raises_error(errors.CorpusError, mentions=values):
    beir.BeirDataset(directory=str(folder)).load('de')


def test_missing_part_is_rejected(folder):
  with raises_error(errors.CorpusError, got='sw'):
    beir.BeirDataset(directory=str(folder), splits=('sw',)).languages()

"""Tests that task families other than XTREME's score above a baseline.

The families are parsing by content words, multiple choice, questions without an
answer, frozen vectors, and SIB-200 and MASSIVE from files in their published
format. As in synthetic_test, the commands and gin files are those of
docs/measured/synthetic.md, with a smaller encoder of two languages.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest

from studies.synthetic import __main__ as synthetic

_ROOT = pathlib.Path(__file__).parents[2]
_FILES = _ROOT / 'studies/synthetic'
# Tasks on frozen vectors: metric and part, the score of uninformative vectors
# (a number or a baseline metric), and the minimum improvement over it.
_FROZEN = {
  'similarity': ('spearman/aa-en', 0.0, 0.08),
  'pairs': ('average_precision/aa-en', 'positive/aa-en', 0.05),
  'ranking': ('ndcg@10/aa', 0.023, 0.3),  # sum of 1 / log2(rank + 1) / 200
  'xsim': ('xsim/aa', 0.995, 0.3),  # error rate if one of 200 is correct
  'topics': ('v_measure/aa', 0.0, 0.3),
}
_TRAINED = ('trees', 'choices', 'unanswerable')
_TEXT_AND_CLASS = "OPTIONS={'columns': {'text': 0, 'label': 1}}"
_LOCALES = {'en': ('eng_Latn', 'en-US'), 'aa': ('swh_Latn', 'sw-KE')}

pytestmark = pytest.mark.slow


def _run_xlflax(*arguments: str) -> None:
  done = subprocess.run(
    [sys.executable, '-m', 'xlflax.cli', *arguments],
    cwd=_ROOT,
    text=True,
    check=False,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''},
  )
  assert done.returncode == 0, done.stdout


@pytest.fixture(scope='module')
def root(tmp_path_factory) -> pathlib.Path:
  """Directory with `toy`, `vocab` and the pretrained `encoder`."""
  root = tmp_path_factory.mktemp('families')
  arguments = [
    f'--output={root}/toy',
    '--languages=en,aa',
    '--anchors=0.5',
    '--sentences=5000',
    '--pairs=8000',
    *('--size', 'choices/train=10000'),
    *('--size', 'unanswerable/train=10000'),
    *('--size', 'topics/dev=1000'),
    *('--size', 'choices/test=1000'),
  ]
  assert not synthetic.main(arguments)
  _run_xlflax(
    'vocab',
    f'--corpus={root}/toy/corpus',
    f'--output={root}/vocab',
    '--size=1000',
    '--model_type=bpe',
    '--character_coverage=1',
  )
  _run_xlflax(
    'train',
    '--gin_file=pretrain/mlm_tlm.gin',
    '--gin_file=models/encoder.gin',
    f'--gin_file={_FILES}/encoder.gin',
    '--gin.EncoderConfig.num_layers=3',
    '--gin.EncoderConfig.hidden_dim=96',
    '--gin.EncoderConfig.mlp_dim=384',
    '--gin.TRAIN_STEPS=500',
    '--gin.WARMUP_STEPS=50',
    '--gin.BATCH_SIZE=6',
    '--gin.PAIR_BATCH_SIZE=24',
    f'--corpus={root}/toy/corpus',
    f'--vocabulary={root}/vocab',
    f'--model_dir={root}/encoder',
  )
  return root


@pytest.fixture(scope='module')
def scores(root) -> dict[str, dict[str, float]]:
  """Metrics by task and name, after fine-tuning on `en`."""
  _run_xlflax(
    'evaluate',
    f'--suite={_FILES}/suite.gin',
    f'--data={root}/toy',
    f'--model_dir={root}/encoder',
    f'--output={root}/suite',
    f'--tasks={",".join([*_TRAINED, *_FROZEN])}',
  )
  [model] = json.loads((root / 'suite/suite.json').read_text())['models']
  return {
    name: {key: value['mean'] for key, value in task['scores'].items()}
    for name, task in model['tasks'].items()
  }


@pytest.mark.parametrize('metric', ['clas', 'mlas', 'blex'])
def test_parsing_is_above_the_left_branching_baseline(scores, metric):
  metrics = scores['trees']
  assert metrics[f'{metric}/aa'] > metrics['left_branching/aa']


@pytest.mark.parametrize('task', _FROZEN)
def test_frozen_vectors_are_above_the_baseline(scores, task):
  """Scores of the trained model exceed those of uninformative vectors."""
  name, baseline, min_improvement = _FROZEN[task]
  score = scores[task][name]
  if isinstance(baseline, str):
    baseline = scores[task][baseline]
  assert (
    baseline - score if task == 'xsim' else score - baseline
  ) > min_improvement


def test_xsim_plus_plus_is_below_the_chance_error_rate(scores):
  """In xsim++, one of 400 sentences is correct and 200 are altered copies."""
  assert 0.9975 - scores['xsim']['xsim++/aa'] > 0.15


def test_reranking_is_above_the_random_baseline(root):
  """One of ten is relevant, so the random mean reciprocal rank is 0.293."""
  folder = root / 'reranked/aa'
  shutil.copytree(root / 'toy/ranking/test/aa', folder)
  right = [
    line.split() for line in (folder / 'relevance.tsv').read_text().splitlines()
  ]
  draw = random.Random(0)
  names = [document for _, _, document, _ in right]
  lines = [
    f'{query}\t{name}'
    for query, _, document, _ in right
    for name in (document, *draw.sample([n for n in names if n != document], 9))
  ]
  _save(folder / 'candidates.tsv', lines)
  before = set(_results(root / 'encoder'))
  _run_xlflax(
    'evaluate',
    '--tasks=ranking',
    f'--corpus={root}/reranked',
    f'--model_dir={root}/encoder',
  )
  [path] = set(_results(root / 'encoder')) - before
  metrics = json.loads(path.read_text())['metrics']
  assert metrics['mrr@20/aa'] > 0.293 + 0.2
  assert metrics['recall@100/aa'] == 1


@pytest.mark.parametrize('language, min_accuracy', [('en', 0.9), ('aa', 0.55)])
def test_multiple_choice_is_above_chance(scores, language, min_accuracy):
  metrics = scores['choices']
  assert metrics[f'chance/{language}'] == 0.5
  assert metrics[f'accuracy/{language}'] > min_accuracy


@pytest.mark.parametrize('language, min_accuracy', [('en', 0.9), ('aa', 0.5)])
def test_unanswerable_questions_are_recognized(
  scores, root, language, min_accuracy
):
  """Scores exceed those of a system that never answers."""
  metrics = scores['unanswerable']
  data = json.loads(
    (root / f'toy/unanswerable/test.{language}.json').read_text()
  )['data']
  empty = [
    entry['is_impossible']
    for article in data
    for paragraph in article['paragraphs']
    for entry in paragraph['qas']
  ]
  assert metrics[f'f1/{language}'] > sum(empty) / len(empty) + 0.1
  assert metrics[f'has_answer_f1/{language}'] > min_accuracy
  assert metrics[f'no_answer_f1/{language}'] > min_accuracy


def _results(run: pathlib.Path) -> list[pathlib.Path]:
  return list((run / 'eval').glob('*/*/*.json'))


def _metrics(run: pathlib.Path) -> dict[str, float]:
  """Returns the metrics of the only result of a run."""
  [path] = _results(run)
  return json.loads(path.read_text())['metrics']


def _finetune(root, name, family, train, test, *settings) -> dict[str, float]:
  """Trains a run with `finetune/FAMILY.gin`; returns its metrics."""
  train, test = (
    ', '.join(f"'{key}': '{path}'" for key, path in files.items())
    for files in (train, test)
  )
  settings = tuple(f'--gin.{setting}' for setting in settings)
  _run_xlflax(
    'train',
    f'--gin_file=finetune/{family}.gin',
    f'--model_dir={root / name}',
    f"--gin.INIT_FROM='{root}/encoder'",
    f'--gin.TRAIN_FILES={{{train}}}',
    '--gin.LENGTH=48',
    '--gin.TRAIN_STEPS=150',
    '--gin.LEARNING_RATE=1e-3',
    # The label scheme has no effect on training.
    *(setting for setting in settings if '.SCHEME=' not in setting),
  )
  _run_xlflax(
    'evaluate',
    f'--gin_file=evaluate/{family}.gin',
    f'--model_dir={root / name}',
    f'--gin.TEST_FILES={{{test}}}',
    *settings,
  )
  return _metrics(root / name)


def _fetch(root, name: str) -> pathlib.Path:
  output = root / name
  _run_xlflax(
    *('tasks', 'convert', name, f'--input={root}/downloaded/{name}'),
    f'--output={output}',
  )
  return output


def _save(path: pathlib.Path, lines) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(''.join(f'{line}\n' for line in lines))


def test_sib_200_topics_are_learned(root):
  """Trains in both languages, because SIB-200 has training texts in all."""
  for code, (name, _) in _LOCALES.items():
    for split, held in (('train', 'dev'), ('test', 'test')):
      lines = (root / f'toy/topics/{held}.{code}.tsv').read_text().splitlines()
      rows = (line.split('\t') for line in lines)
      _save(
        root / f'downloaded/sib200/{name}/{split}.tsv',
        ['index_id\tcategory\ttext', *(f'0\t{b}\t{a}' for a, b in rows)],
      )
  folder, named = _fetch(root, 'sib200'), _LOCALES.items()
  metrics = _finetune(
    root,
    'topics',
    'classification',
    *(
      {code: folder / name / f'{split}.tsv' for code, (name, _) in named}
      for split in ('train', 'test')
    ),
    _TEXT_AND_CLASS,
  )
  for code in _LOCALES:
    assert metrics[f'accuracy/{code}'] > metrics[f'majority/{code}'] + 0.2


def _utterances(root, code: str) -> list[dict]:
  """Returns MASSIVE rows whose intent is the type of the first entity."""
  utterances = []
  for split, partition in (('train', 'train'), ('test', 'test')):
    text = (root / f'toy/ner/{split}.{code}.iob2').read_text()
    for sentence in text.strip().split('\n\n'):
      rows = [x.split('\t') for x in sentence.splitlines() if x[0] != '#']
      marked, kinds = [], []
      for _, word, tag, *_ in rows:
        if tag.startswith('B-'):
          kinds.append(tag[2:])
          marked.append(f'[{tag[2:]} : {word}]')
        elif tag.startswith('I-'):
          marked[-1] = f'{marked[-1][:-1]} {word}]'
        else:
          marked.append(word)
      utterances.append(
        {
          'partition': partition,
          'utt': ' '.join(row[1] for row in rows),
          'annot_utt': ' '.join(marked),
          'intent': kinds[0] if kinds else 'none',
        }
      )
  return utterances


@pytest.fixture(scope='module')
def massive(root):
  for code, (_, locale) in _LOCALES.items():
    _save(
      root / f'downloaded/massive/{locale}.jsonl',
      map(json.dumps, _utterances(root, code)),
    )
  return _fetch(root, 'massive')


def test_massive_intents_are_learned(root, massive):
  folder = massive / 'intents'
  metrics = _finetune(
    root,
    'intents',
    'classification',
    {'en': folder / 'en-US/train.tsv'},
    {'en': folder / 'en-US/test.tsv', 'aa': folder / 'sw-KE/test.tsv'},
    _TEXT_AND_CLASS,
  )
  for code in _LOCALES:
    assert metrics[f'accuracy/{code}'] > metrics[f'majority/{code}'] + 0.1


def test_massive_slots_are_learned(root, massive):
  folder = massive / 'slots'
  metrics = _finetune(
    root,
    'slots',
    'tagging',
    {'en': folder / 'en-US/train.conll'},
    {'en': folder / 'en-US/test.conll', 'aa': folder / 'sw-KE/test.conll'},
    "FORMAT='conll_iob2'",
    "SCHEME='entities'",
  )
  # Predicting no entities would score 0.
  assert metrics['f1/en'] > 0.5 and metrics['f1/aa'] > 0.2

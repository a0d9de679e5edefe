"""A run in a bucket is the run on disk; what follows it needs no disk."""

import functools
import json
import pathlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests import fake_bucket, fake_s3
from tests.end_to_end.conftest import (
  TINY,
  TINY_MLM,
  free_port,
  kill,
  losses,
  parameters,
)
from xlflax.training import param_tree
from xlflax.training.checkpointing import saved_run

_FLAGS = (
  '--gin.checkpoints.CheckpointOptions.save_interval_steps=4',
  '--gin.checkpoints.CheckpointOptions.max_to_keep=2',
)
_STALE = 3.0  # seconds after which lists of Google's buckets know a change
_STEPS = '--gin.TRAIN_STEPS=8'


@pytest.fixture
def bucket():
  """(the bucket, variables for processes that use it)."""
  pytest.importorskip('gcsfs')
  with fake_bucket.serve() as (found, address):
    yield found, fake_bucket.variables(address)


def _copied(found: fake_bucket.Bucket, name: str) -> pathlib.Path:
  """The objects of a run as files."""
  folder = pathlib.Path(tempfile.mkdtemp())
  for key, (_, content) in found.objects.items():
    if key.startswith(f'{name}/'):
      (folder / key).parent.mkdir(parents=True, exist_ok=True)
      (folder / key).write_bytes(content)
  return folder / name


@pytest.mark.slow
def test_stopped_and_continued_in_a_bucket(workspace, bucket, tmp_path):
  """One process to step 6, then two processes, whose batches are the same."""
  found, variables = bucket
  common = ('train', *TINY, *_FLAGS, _STEPS, *workspace.inputs, workspace.cache)
  workspace.run(*common, f'--model_dir={tmp_path / "run"}')
  workspace.run(
    *common, '--model_dir=gs://bucket/run', '--stop_after_steps=6', **variables
  )
  port = free_port()
  processes = [
    workspace.start(
      *common,
      '--model_dir=gs://bucket/run',
      '--num_processes=2',
      f'--process_id={i}',
      f'--coordinator_address=127.0.0.1:{port}',
      **variables,
    )
    for i in range(2)
  ]
  outputs = [process.communicate(timeout=300)[0] for process in processes]
  assert [p.returncode for p in processes] == [0, 0], outputs
  assert 'Resuming from the checkpoint of step 6' in outputs[0]
  copy = _copied(found, 'run')
  expected, got = (
    param_tree.flatten_params(saved_run.load_run(d).restore_params(8))
    for d in (tmp_path / 'run', copy)
  )
  for name, value in expected.items():
    np.testing.assert_allclose(got[name], value, atol=1e-4, err_msg=name)
  assert losses(copy).keys() == losses(tmp_path / 'run').keys()


@pytest.mark.slow
def test_stopped_in_s3_is_the_run_on_disk(workspace, tmp_path):
  """Stopped at 5 and 7 of 8 steps, with faults: parameters bit for bit."""
  with fake_s3.serve() as (faults, address):
    variables = fake_s3.variables(address)
    common = ('train', *TINY, *_FLAGS, _STEPS, *workspace.inputs)
    common = (*common, workspace.cache)
    workspace.run(*common, f'--model_dir={tmp_path / "run"}')
    faults.every = 11
    for stop in ('--stop_after_steps=5', '--stop_after_steps=7', ''):
      workspace.run(
        *common,
        '--model_dir=s3://bucket/run',
        *filter(None, [stop]),
        **variables,
      )
    assert faults.told
    faults.every = 0
    shared = fake_s3.download(address, 'run', tmp_path / 'copy')
  expected, got = (
    param_tree.flatten_params(saved_run.load_run(d).restore_params(8))
    for d in (tmp_path / 'run', shared)
  )
  for name, value in expected.items():
    np.testing.assert_array_equal(got[name], value, err_msg=name)


def _treebank(path: pathlib.Path) -> str:
  """Sentences whose words have a tag each, as gin's value of files."""
  words = ('der', 'kater', 'hund', 'sieht', 'findet', 'haus')
  lines = [[words[(i * k + i) % 6] for k in range(1, 5)] for i in range(12)]
  path.write_text(
    '\n'.join(
      ''.join(
        f'{word}\t{"VERB" if word in words[3:5] else "NOUN"}\n' for word in line
      )
      for line in lines
    ),
    encoding='utf-8',
  )
  return f"{{'de': {str(path)!r}}}"


@pytest.mark.slow
def test_evaluated_and_fine_tuned_in_a_bucket(workspace, bucket, tmp_path):
  """All that follows pretraining, with nothing of a run on disk."""
  found, variables = bucket
  workspace.run(
    'train',
    *TINY,
    *_FLAGS,
    _STEPS,
    *workspace.inputs,
    workspace.cache,
    '--model_dir=gs://bucket/mlm',
    **variables,
  )
  printed = workspace.run(
    'evaluate',
    '--model_dir=gs://bucket/mlm',
    '--checkpoint_steps=all',
    '--tasks=retrieval,perplexity',
    *workspace.inputs[::2],
    **variables,
  )
  assert 'retrieval: accuracy' in printed
  names = [re.sub('-[0-9a-f]{8}/', '/', name) for name in found.objects]
  assert {
    'mlm/eval/retrieval/test/4.json',
    'mlm/eval/retrieval/test/8.json',
    'mlm/eval/perplexity.test.png',
    'mlm/eval/retrieval.test.layers.png',
    'mlm/eval/summary.csv',
  } <= set(names)
  files = _treebank(tmp_path / 'de.conll')
  tune = (
    'finetune',
    '--gin_file=finetune/tagging.gin',
    '--init_from=gs://bucket/mlm',
    '--output=gs://bucket/pos',
    "--gin.FORMAT='conll'",
    f'--gin.TRAIN_FILES={files}',
    f'--gin.DEV_FILES={files}',
    '--gin.LENGTH=16',
    '--gin.BATCH_SIZE=4',
    '--gin.TRAIN_STEPS=6',
    '--gin.EVAL_STEPS=3',
    '--grid=SEED=0',
    '--metric_for_best_model=tagging/accuracy/de',
    '--eval_gin_file=evaluate/tagging.gin',
    "--eval_gin=FORMAT='conll'",
    f'--eval_gin=TEST_FILES={files}',
    workspace.inputs[2],
  )
  workspace.run(*tune, **variables)
  record = json.loads(found.objects['pos/grid.json'][1])
  (trial,) = record['trials']
  assert trial['status'] == 'finished' and trial['step'] in (3, 6)
  assert trial['test']['tagging_test/accuracy/de'] >= 0
  saved = [
    name
    for name in found.objects
    if name.startswith('pos/trials/SEED=0/checkpoints/')
    and name.endswith(f'/{trial["step"]}/commit_success.txt')
  ]
  assert len(saved) == 1
  assert 'was there' in workspace.run(*tune, **variables)


def _jsonl_folder(workspace, folder: pathlib.Path) -> None:
  """The text of the workspace as files of records, and a part held out."""
  for path in sorted((workspace.root / 'corpus/mono').glob('*.txt')):
    lines = filter(None, path.read_text(encoding='utf-8').splitlines())
    (folder / f'{path.stem}.jsonl').write_text(
      ''.join(json.dumps({'text': line}) + '\n' for line in lines),
      encoding='utf-8',
    )


def _kill_when(process, is_so) -> None:
  """Ends a process by SIGKILL as soon as something is so."""
  while process.poll() is None and not is_so():
    time.sleep(0.02)
  output = kill(process)
  assert process.returncode == -9, output


def _files(folder: pathlib.Path) -> dict[str, bytes]:
  return {
    path.relative_to(folder).as_posix(): path.read_bytes()
    for path in sorted(folder.rglob('*'))
    if path.is_file() and not path.name.startswith('.')
  }


class _Store(NamedTuple):
  """A store that this test serves: `faults.every` has requests go wrong."""

  scheme: str
  faults: Any
  variables: dict[str, str]
  upload: Callable[[pathlib.Path, str], None]
  names: Callable[[str], list[str]]
  download: Callable[[str, pathlib.Path], pathlib.Path]


@pytest.fixture(params=['s3', 'gs'])
def store(request) -> Iterator[_Store]:
  if request.param == 's3':
    with fake_s3.serve() as (faults, address):
      yield _Store(
        *('s3', faults, fake_s3.variables(address)),
        *(
          functools.partial(one, address)
          for one in (fake_s3.upload, fake_s3.names, fake_s3.download)
        ),
      )
    return
  pytest.importorskip('gcsfs')
  with fake_bucket.serve() as (found, address):

    def upload(folder: pathlib.Path, name: str) -> None:
      for path in sorted(p for p in folder.rglob('*') if p.is_file()):
        key = f'{name}/{path.relative_to(folder).as_posix()}'
        found.put(key, path.read_bytes())

    yield _Store(
      *('gs', found, fake_bucket.variables(address), upload),
      lambda prefix: [n for n in list(found.objects) if n.startswith(prefix)],
      lambda name, _: _copied(found, name),
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_from_records_to_a_published_folder(workspace, store, tmp_path):
  """Killed while the cache is uploaded and in training, with faults.

  Parameters, cache, results and published files equal those of disks, bit for
  bit.
  """
  own = [flag for flag in TINY_MLM if '_file=' not in flag]
  words = ('--steps=12', '--vocabulary_size=70', *own, _FLAGS[0])
  raw = tmp_path / 'raw'
  raw.mkdir()
  _jsonl_folder(workspace, raw)
  compiled = {'XLFLAX_COMPILATION_CACHE': str(tmp_path / 'compiled')}
  at = f'{store.scheme}://bucket'
  store.upload(raw, 'raw')
  store.upload(workspace.root / 'corpus', 'eval')
  time.sleep(_STALE)
  store.faults.every, store.faults.stale = 11, _STALE
  # Orbax refuses a checkpoint that a list does not show (tests/training).
  store.faults.late = lambda name: '/checkpoints/' not in name
  pretrain = ('pretrain', f'{at}/raw', f'--output={at}/out')
  environment = {
    **store.variables,
    **compiled,
    'XLFLAX_STAGE': str(tmp_path / 'staged'),
  }

  def there(name: str) -> bool:
    return bool(store.names(f'out/{name}'))

  process = workspace.start(*pretrain, *words, **environment)
  _kill_when(process, lambda: there('cache/tasks'))
  assert not there('cache/cache.json')
  process = workspace.start(*pretrain, *words, **environment)
  _kill_when(process, lambda: there('model/checkpoints/4/commit_success'))
  last = workspace.run(*pretrain, *words, **environment)
  assert 'Resuming from the checkpoint' in last
  evaluate = (
    '--tasks=perplexity',
    f'--corpus={at}/eval',
    '--random_init_baseline',
  )
  model = f'--model_dir={at}/out/model'
  workspace.run('evaluate', model, *evaluate, **environment)
  store.faults.every = 101  # this asks for each tensor, clients wait for long
  published = f'--output={at}/published'
  workspace.run('convert', 'to-hf', model[12:], published, **environment)
  assert store.faults.told
  assert store.scheme == 's3' or store.faults.misled
  store.faults.every = 0
  got = store.download('out', tmp_path / 'copy')
  folder = store.download('published', tmp_path / 'copy')
  expected = tmp_path / 'out'
  workspace.run(
    *('pretrain', str(raw), f'--output={expected}', *words), **compiled
  )
  model = f'--model_dir={expected / "model"}'
  here = f'--corpus={workspace.root / "corpus"}'
  workspace.run('evaluate', model, evaluate[0], here, evaluate[2])
  workspace.run(
    *('convert', 'to-hf', model[12:], f'--output={tmp_path / "published"}')
  )
  for name in ('vocabulary', 'cache'):
    assert _files(got / name) == _files(expected / name)
  left, right = (parameters(one / 'model', 12) for one in (got, expected))
  assert left.keys() == right.keys()
  assert all((left[name] == right[name]).all() for name in left)
  left, right = (_results(one / 'model') for one in (got, expected))
  assert left and left == right
  left, right = map(_files, (folder, tmp_path / 'published'))
  assert left.keys() == right.keys()
  assert [n for n in left if left[n] != right[n]] == []


def _results(model: pathlib.Path) -> dict[str, dict]:
  """Metrics of all evaluations, by file."""
  return {
    path.relative_to(model).as_posix(): json.loads(path.read_text())['metrics']
    for path in sorted(model.glob('eval/*/*/*.json'))
  }

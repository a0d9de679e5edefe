"""Tests that runs in a bucket equal runs on disk."""

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
_STALE = 3.0  # seconds until listings show a change
_STEPS = '--gin.TRAIN_STEPS=8'


@pytest.fixture
def bucket():
  """Bucket and the environment variables of processes that use it."""
  pytest.importorskip('gcsfs')
  with fake_bucket.serve_bucket() as (fake, address):
    yield fake, fake_bucket.client_environment(address)


def _copy_run(bucket: fake_bucket.Bucket, name: str) -> pathlib.Path:
  """Writes the objects of a run as files."""
  folder = pathlib.Path(tempfile.mkdtemp())
  for key, (_, content) in bucket.objects.items():
    if key.startswith(f'{name}/'):
      (folder / key).parent.mkdir(parents=True, exist_ok=True)
      (folder / key).write_bytes(content)
  return folder / name


@pytest.mark.slow
def test_run_resumed_in_a_bucket_equals_the_run_on_disk(
  workspace, bucket, tmp_path
):
  """One process trains to step 6, then two processes with the same batches."""
  fake, variables = bucket
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
  copy = _copy_run(fake, 'run')
  expected, actual = (
    param_tree.flatten_params(saved_run.load_run(d).restore_params(8))
    for d in (tmp_path / 'run', copy)
  )
  for name, value in expected.items():
    np.testing.assert_allclose(actual[name], value, atol=1e-4, err_msg=name)
  assert losses(copy).keys() == losses(tmp_path / 'run').keys()


@pytest.mark.slow
def test_run_resumed_in_s3_equals_the_run_on_disk(workspace, tmp_path):
  """Stops at 5 and 7 of 8 steps, with faults; compares parameters exactly."""
  with fake_s3.serve_store() as (faults, address):
    variables = fake_s3.client_environment(address)
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
    assert faults.num_faults
    faults.every = 0
    shared = fake_s3.download_files(address, 'run', tmp_path / 'copy')
  expected, actual = (
    param_tree.flatten_params(saved_run.load_run(d).restore_params(8))
    for d in (tmp_path / 'run', shared)
  )
  for name, value in expected.items():
    np.testing.assert_array_equal(actual[name], value, err_msg=name)


def _treebank(path: pathlib.Path) -> str:
  """Writes tagged sentences; returns the files as a gin value."""
  vocabulary = ('der', 'kater', 'hund', 'sieht', 'findet', 'haus')
  lines = [
    [vocabulary[(i * k + i) % 6] for k in range(1, 5)] for i in range(12)
  ]
  path.write_text(
    '\n'.join(
      ''.join(
        f'{word}\t{"VERB" if word in vocabulary[3:5] else "NOUN"}\n'
        for word in line
      )
      for line in lines
    ),
    encoding='utf-8',
  )
  return f"{{'de': {str(path)!r}}}"


@pytest.mark.slow
def test_bucket_runs_are_evaluated_and_fine_tuned(workspace, bucket, tmp_path):
  """Runs all steps after pretraining with no file of the run on disk."""
  fake, variables = bucket
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
  names = [re.sub('-[0-9a-f]{8}/', '/', name) for name in fake.objects]
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
  record = json.loads(fake.objects['pos/grid.json'][1])
  (trial,) = record['trials']
  assert trial['status'] == 'finished' and trial['step'] in (3, 6)
  assert trial['test']['tagging_test/accuracy/de'] >= 0
  saved = [
    name
    for name in fake.objects
    if name.startswith('pos/trials/SEED=0/checkpoints/')
    and name.endswith(f'/{trial["step"]}/commit_success.txt')
  ]
  assert len(saved) == 1
  assert 'was there' in workspace.run(*tune, **variables)


def _jsonl_folder(workspace, folder: pathlib.Path) -> None:
  """Writes the workspace's text as record files, with a held-out part."""
  for path in sorted((workspace.root / 'corpus/mono').glob('*.txt')):
    lines = filter(None, path.read_text(encoding='utf-8').splitlines())
    (folder / f'{path.stem}.jsonl').write_text(
      ''.join(json.dumps({'text': line}) + '\n' for line in lines),
      encoding='utf-8',
    )


def _kill_when(process, is_so) -> None:
  """Kills a process (SIGKILL) as soon as a condition holds."""
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
  """Store that this test serves; `faults.every` makes requests fail."""

  scheme: str
  faults: Any
  variables: dict[str, str]
  upload: Callable[[pathlib.Path, str], None]
  names: Callable[[str], list[str]]
  download: Callable[[str, pathlib.Path], pathlib.Path]


@pytest.fixture(params=['s3', 'gs'])
def store(request) -> Iterator[_Store]:
  if request.param == 's3':
    with fake_s3.serve_store() as (faults, address):
      yield _Store(
        *('s3', faults, fake_s3.client_environment(address)),
        *(
          functools.partial(function, address)
          for function in (
            fake_s3.upload_files,
            fake_s3.list_objects,
            fake_s3.download_files,
          )
        ),
      )
    return
  pytest.importorskip('gcsfs')
  with fake_bucket.serve_bucket() as (fake, address):

    def upload(folder: pathlib.Path, name: str) -> None:
      for path in sorted(p for p in folder.rglob('*') if p.is_file()):
        key = f'{name}/{path.relative_to(folder).as_posix()}'
        fake.put(key, path.read_bytes())

    yield _Store(
      *('gs', fake, fake_bucket.client_environment(address), upload),
      lambda prefix: [n for n in list(fake.objects) if n.startswith(prefix)],
      lambda name, _: _copy_run(fake, name),
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_pipeline_in_a_bucket_equals_the_pipeline_on_disk(
  workspace, store, tmp_path
):
  """Kills during the upload of the cache and during training, with faults.

  Parameters, cache, results and published files equal those on disk exactly.
  """
  model_flags = [flag for flag in TINY_MLM if '_file=' not in flag]
  arguments = ('--steps=12', '--vocabulary_size=70', *model_flags, _FLAGS[0])
  raw = tmp_path / 'raw'
  raw.mkdir()
  _jsonl_folder(workspace, raw)
  compiled = {'XLFLAX_COMPILATION_CACHE': str(tmp_path / 'compiled')}
  at = f'{store.scheme}://bucket'
  store.upload(raw, 'raw')
  store.upload(workspace.root / 'corpus', 'eval')
  time.sleep(_STALE)
  store.faults.every, store.faults.stale = 11, _STALE
  # Orbax rejects a checkpoint that is missing in a listing (tests/training).
  store.faults.late = lambda name: '/checkpoints/' not in name
  pretrain = ('pretrain', f'{at}/raw', f'--output={at}/out')
  environment = {
    **store.variables,
    **compiled,
    'XLFLAX_STAGE': str(tmp_path / 'staged'),
  }

  def exists(name: str) -> bool:
    return bool(store.names(f'out/{name}'))

  process = workspace.start(*pretrain, *arguments, **environment)
  _kill_when(process, lambda: exists('cache/tasks'))
  assert not exists('cache/cache.json')
  process = workspace.start(*pretrain, *arguments, **environment)
  _kill_when(process, lambda: exists('model/checkpoints/4/commit_success'))
  last = workspace.run(*pretrain, *arguments, **environment)
  assert 'Resuming from the checkpoint' in last
  evaluate = (
    '--tasks=perplexity',
    f'--corpus={at}/eval',
    '--random_init_baseline',
  )
  model = f'--model_dir={at}/out/model'
  workspace.run('evaluate', model, *evaluate, **environment)
  store.faults.every = 101  # requests each tensor, and clients wait long
  published = f'--output={at}/published'
  workspace.run('convert', 'to-hf', model[12:], published, **environment)
  assert store.faults.num_faults
  assert store.scheme == 's3' or store.faults.num_stale_listings
  store.faults.every = 0
  actual = store.download('out', tmp_path / 'copy')
  folder = store.download('published', tmp_path / 'copy')
  expected = tmp_path / 'out'
  workspace.run(
    *('pretrain', str(raw), f'--output={expected}', *arguments), **compiled
  )
  model = f'--model_dir={expected / "model"}'
  corpus_flag = f'--corpus={workspace.root / "corpus"}'
  workspace.run('evaluate', model, evaluate[0], corpus_flag, evaluate[2])
  workspace.run(
    *('convert', 'to-hf', model[12:], f'--output={tmp_path / "published"}')
  )
  for name in ('vocabulary', 'cache'):
    assert _files(actual / name) == _files(expected / name)
  actual_values, expected_values = (
    parameters(directory / 'model', 12) for directory in (actual, expected)
  )
  assert actual_values.keys() == expected_values.keys()
  assert all(
    (actual_values[name] == expected_values[name]).all()
    for name in actual_values
  )
  actual_values, expected_values = (
    _results(directory / 'model') for directory in (actual, expected)
  )
  assert actual_values and actual_values == expected_values
  actual_values, expected_values = map(_files, (folder, tmp_path / 'published'))
  assert actual_values.keys() == expected_values.keys()
  assert [
    n for n in actual_values if actual_values[n] != expected_values[n]
  ] == []


def _results(model: pathlib.Path) -> dict[str, dict]:
  """Returns the metrics of all evaluations by file."""
  return {
    path.relative_to(model).as_posix(): json.loads(path.read_text())['metrics']
    for path in sorted(model.glob('eval/*/*/*.json'))
  }

"""A run in a bucket is the run on disk; what follows it needs no disk."""

import json
import pathlib
import re
import tempfile

import numpy as np
import pytest

from tests import fake_bucket, fake_s3
from tests.end_to_end.conftest import TINY, free_port, losses
from xlflax.training import params
from xlflax.training.checkpointing import run

_FLAGS = (
  '--gin.checkpoints.CheckpointOptions.every_steps=4',
  '--gin.checkpoints.CheckpointOptions.keep_last=2',
)
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
    *common, '--model_dir=gs://bucket/run', '--stop_at_step=6', **variables
  )
  port = free_port()
  processes = [
    workspace.start(
      *common,
      '--model_dir=gs://bucket/run',
      '--num_processes=2',
      f'--process_id={i}',
      f'--coordinator=127.0.0.1:{port}',
      **variables,
    )
    for i in range(2)
  ]
  outputs = [process.communicate(timeout=300)[0] for process in processes]
  assert [p.returncode for p in processes] == [0, 0], outputs
  assert 'Continuing from the checkpoint of step 6' in outputs[0]
  copy = _copied(found, 'run')
  expected, got = (
    params.names(run.open_run(d).restore_params(8))
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
    for stop in ('--stop_at_step=5', '--stop_at_step=7', ''):
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
    params.names(run.open_run(d).restore_params(8))
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
    '--steps=all',
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
    '--select=tagging/accuracy/de',
    '--test_gin_file=evaluate/tagging.gin',
    "--test_gin=FORMAT='conll'",
    f'--test_gin=TEST_FILES={files}',
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

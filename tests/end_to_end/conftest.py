"""Shared workspace with corpus, vocabulary and cache, and process helpers."""

import dataclasses
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests import xla_flags
from xlflax import cli
from xlflax.data.corpus import corpus_writer

_STEMS = {
  'en': 'the cat dog house tree river stone bird runs sees finds near under '
  'old small green walks sleeps over water'.split(),
  'de': 'der kater hund haus baum fluss stein vogel rennt sieht findet nahe '
  'unter alt klein grün läuft schläft über wasser'.split(),
  'ru': 'тот кот пёс дом дерево река камень птица бежит видит находит возле '
  'под старый малый зелёный идёт спит над вода'.split(),
}

TINY = (
  '--gin_file=pretrain/mlm_tlm_contrast.gin',
  '--gin_file=models/tiny.gin',
  '--gin.EncoderConfig.num_layers=2',
  '--gin.EncoderConfig.hidden_dim=16',
  '--gin.EncoderConfig.mlp_dim=32',
  '--gin.EncoderConfig.num_heads=2',
  '--gin.EncoderConfig.max_position_embeddings=32',
  '--gin.LENGTH=16',
  '--gin.PAIR_LENGTH=24',
  '--gin.SIDE_LENGTH=16',
  '--gin.BATCH_SIZE=8',
  '--gin.PAIR_BATCH_SIZE=8',
  '--gin.SIDE_BATCH_SIZE=8',
  '--gin.WARMUP_STEPS=2',
  '--gin.LEARNING_RATE=1e-2',
  '--gin.trainer.Trainer.log_metrics_every=3',
)
# One objective on one dataset, which compiles fastest.
TINY_MLM = (
  '--gin_file=pretrain/mlm.gin',
  *(
    flag
    for flag in TINY
    if 'pretrain/' not in flag and 'PAIR_' not in flag and 'SIDE_' not in flag
  ),
)


def write_corpus(directory: pathlib.Path, sentences: int = 120) -> None:
  """Writes sentences of three synthetic languages, translated word by word."""
  rng = random.Random(7)
  stem_indices = [
    [rng.randrange(20) for _ in range(rng.randint(3, 9))]
    for _ in range(sentences)
  ]
  text = {
    language: [
      ' '.join(stems[i] for i in sentence) for sentence in stem_indices
    ]
    for language, stems in _STEMS.items()
  }
  num_test_lines = sentences // 6
  for language, lines in text.items():
    train = lines[num_test_lines:]
    corpus_writer.write_monolingual(
      directory, language, [train[:40], train[40:]]
    )
    corpus_writer.write_monolingual(
      directory, language, [lines[:num_test_lines]], split='test'
    )
  for language in ('de', 'ru'):
    pairs = list(zip(text['en'], text[language], strict=True))
    corpus_writer.write_parallel(
      directory, ('en', language), pairs[num_test_lines:]
    )
    corpus_writer.write_parallel(
      directory, ('en', language), pairs[:num_test_lines], split='test'
    )


def free_port() -> int:
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    return listener.getsockname()[1]


@dataclasses.dataclass(frozen=True)
class Workspace:
  """Directory with text, vocabulary and cache, in which commands are run."""

  root: pathlib.Path

  @property
  def inputs(self) -> tuple[str, ...]:
    return (
      f'--corpus={self.root / "corpus"}',
      f'--vocabulary={self.root / "vocabulary"}',
      f'--compilation_cache={self.root / "compiled"}',
    )

  @property
  def cache(self) -> str:
    return f'--cache={self.root / "cache"}'

  def environment(self, devices: int = 1, **variables: str) -> dict[str, str]:
    return (
      os.environ
      | {
        'JAX_PLATFORMS': 'cpu',
        'PYTHONUNBUFFERED': '1',
        'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices} '
        + xla_flags.quick_compilation_flags(),
      }
      | variables
    )

  def start(
    self, *arguments: str, devices: int = 1, log=None, **environment
  ) -> subprocess.Popen:
    """Starts `xlflax ARGUMENTS` as a separate process."""
    return subprocess.Popen(
      [sys.executable, '-m', 'xlflax.cli', *arguments],
      text=True,
      stdout=log or subprocess.PIPE,
      stderr=subprocess.STDOUT,
      env=self.environment(devices, **environment),
    )

  def run(
    self, *arguments: str, devices: int = 1, status: int = 0, **environment
  ) -> str:
    """Runs `xlflax ARGUMENTS`; returns its output."""
    process = self.start(*arguments, devices=devices, **environment)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == status, output
    return output

  def train(
    self,
    model_dir: pathlib.Path,
    *arguments: str,
    steps: int = 24,
    devices: int = 1,
    status: int = 0,
    options: tuple[str, ...] = TINY,
  ) -> str:
    return self.run(
      'train',
      *options,
      *self.inputs,
      f'--model_dir={model_dir}',
      f'--gin.TRAIN_STEPS={steps}',
      *arguments,
      devices=devices,
      status=status,
    )

  def train_together(
    self,
    model_dir: pathlib.Path,
    *arguments: str,
    steps: int = 24,
    processes: int = 2,
    devices: int = 1,
    options: tuple[str, ...] = TINY,
  ) -> list[str]:
    """Trains with several processes of one job over loopback."""
    port = free_port()
    started = [
      self.start(
        'train',
        *options,
        *self.inputs,
        f'--model_dir={model_dir}',
        f'--gin.TRAIN_STEPS={steps}',
        f'--coordinator_address=127.0.0.1:{port}',
        f'--num_processes={processes}',
        f'--process_id={i}',
        *arguments,
        devices=devices,
      )
      for i in range(processes)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    for process, output in zip(started, outputs, strict=True):
      assert process.returncode == 0, output
    return outputs


def make_workspace(root: pathlib.Path) -> Workspace:
  """Writes a corpus, a vocabulary and a token cache."""
  space = Workspace(root)
  write_corpus(root / 'corpus')
  corpus, vocabulary = f'--corpus={root / "corpus"}', root / 'vocabulary'
  status = cli.main(['vocab', corpus, f'--output={vocabulary}', '--size=100'])
  assert status == 0
  status = cli.main(
    [
      'cache',
      corpus,
      f'--vocabulary={vocabulary}',
      '--mixture=corpus.mono',
      '--mixture=corpus.parallel',
      f'--output={root / "cache"}',
      '--num_workers=1',
    ]
  )
  assert status == 0
  return space


@pytest.fixture(scope='session')
def workspace(tmp_path_factory) -> Workspace:
  """Workspace of all end-to-end tests of a worker, except for model dirs."""
  return make_workspace(tmp_path_factory.mktemp('workspace'))


def losses(model_dir: pathlib.Path) -> dict[int, dict[str, float]]:
  """Returns the training metrics of a run by step, without the speed."""
  lines = (model_dir / 'metrics.jsonl').read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  steps = [row['step'] for row in rows if 'train' in row]
  assert steps == sorted(set(steps)), steps
  return {row['step']: row['train'] for row in rows if 'train' in row}


def wait_for_step(process, model_dir: pathlib.Path, step: int) -> None:
  """Blocks until a run has logged `step` or has ended."""
  path = model_dir / 'metrics.jsonl'
  for _ in range(30000):
    if process.poll() is not None:
      return
    if path.exists():
      lines = path.read_text().splitlines()
      if lines and json.loads(lines[-1])['step'] >= step:
        return
    time.sleep(0.005)
  raise AssertionError(f'{model_dir} did not reach step {step}')


def unfinished_checkpoints(model_dir: pathlib.Path) -> list[pathlib.Path]:
  """Returns checkpoints that are incomplete or being written."""
  return list((model_dir / 'checkpoints').glob('*orbax-checkpoint-tmp*'))


def wait_for_unfinished_checkpoint(process, model_dir: pathlib.Path) -> None:
  """Blocks until a run with a finished checkpoint writes another one."""
  while process.poll() is None:
    finished = (model_dir / 'checkpoints/4').is_dir()
    if finished and unfinished_checkpoints(model_dir):
      return
    time.sleep(0.001)
  raise AssertionError(process.communicate()[0])


def kill(process, number: int = signal.SIGKILL) -> str:
  """Sends a signal and returns the output of the process."""
  if process.poll() is None:
    process.send_signal(number)
  output, _ = process.communicate(timeout=120)
  return output


def parameters(model_dir: pathlib.Path, step: int, item: str = 'params'):
  """Returns the arrays of a checkpoint item by name."""
  import orbax.checkpoint as ocp

  with ocp.PyTreeCheckpointer() as checkpointer:
    tree = checkpointer.restore(
      model_dir.absolute() / 'checkpoints' / str(step) / item
    )
  import jax
  import numpy as np

  return {
    jax.tree_util.keystr(path): np.asarray(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }

"""Commands of the kill campaign, with tiny settings and one corpus."""

import dataclasses
import pathlib
from collections.abc import Callable

from tests.end_to_end import conftest as end_to_end

_MODEL = (
  '--gin_file=pretrain/mlm.gin',
  '--gin_file=models/tiny.gin',
  '--gin.EncoderConfig.num_layers=1',
  '--gin.EncoderConfig.hidden_dim=16',
  '--gin.EncoderConfig.mlp_dim=32',
  '--gin.EncoderConfig.num_heads=2',
  '--gin.EncoderConfig.max_position_embeddings=32',
  '--gin.LENGTH=16',
  '--gin.BATCH_SIZE=4',
  '--gin.TRAIN_STEPS=10',
  '--gin.WARMUP_STEPS=2',
  '--gin.LEARNING_RATE=1e-2',
)
_FREQUENT_SAVES = (
  '--gin.checkpoints.CheckpointOptions.save_interval_steps=2',
  '--gin.trainer.Trainer.log_metrics_every=1',
  '--gin.trainer.Trainer.trackers=()',
)
_OUTPUT_EXISTS = 'The output already exists'


@dataclasses.dataclass(frozen=True)
class Command:
  """A command that is killed.

  Attributes:
    name: Name such as 'convert to-hf'.
    arguments: Function that maps an output path to the arguments of `xlflax`.
    kills: Number of times that the command is killed per round. It is higher
      for commands that take less time.
    start: Directory that is copied to the output first, if any.
    finished_message: Error message of the command if it had finished before
      the kill.
    compiles: Whether to call the command twice to fill the compilation cache.
  """

  name: str
  arguments: Callable[[str], list[str]]
  kills: int
  start: pathlib.Path | None = None
  finished_message: str = ''
  compiles: bool = False


def prepare_commands(
  server, space: end_to_end.Workspace, directory: pathlib.Path
) -> list[Command]:
  """Returns the commands and writes their inputs into `directory`.

  Args:
    server: A `kills.Server`.
    space: Workspace with text, vocabulary and cache.
    directory: Working directory.
  """
  run, folder = directory / 'a_run', directory / 'a_folder'
  corpus, _, compiled = space.inputs

  def training(out: str) -> list[str]:
    return [*train_arguments(space), f'--model_dir={out}']

  def to_hf(out: str) -> list[str]:
    return ['convert', 'to-hf', str(run), f'--output={out}']

  log = directory / 'preparation'
  for arguments in (training(str(run)), to_hf(str(folder))):
    if server.run(log, arguments)[0]:
      raise RuntimeError(log.read_text()[-2000:])
  return [
    Command('vocab', lambda out: _vocab(corpus, out), 20),
    Command('cache', lambda out: _cache(space, out), 18),
    Command('train', training, 14),
    Command('finetune', _finetune(run, directory, compiled), 8, compiles=True),
    Command(
      'evaluate',
      lambda out: [
        *('evaluate', f'--model_dir={out}', '--tasks=retrieval', corpus),
        *('--checkpoint_steps=all', compiled),
      ],
      12,
      start=run,
      compiles=True,
    ),
    Command(
      'convert average',
      lambda out: [
        *('convert', 'average', f'--model_dir={run}', '--last=2'),
        f'--output={out}',
      ],
      12,
      finished_message=_OUTPUT_EXISTS,
    ),
    Command('convert to-hf', to_hf, 10, finished_message=_OUTPUT_EXISTS),
    Command(
      'convert from-hf',
      lambda out: ['convert', 'from-hf', str(folder), f'--output={out}'],
      10,
      finished_message=_OUTPUT_EXISTS,
    ),
  ]


def train_arguments(space: end_to_end.Workspace) -> list[str]:
  """Returns arguments of `train` for ten steps, without the directory."""
  return ['train', *_MODEL, *_FREQUENT_SAVES, *space.inputs, space.cache]


def _vocab(corpus: str, out: str) -> list[str]:
  return ['vocab', corpus, f'--output={out}', '--size=100']


def _cache(space: end_to_end.Workspace, out: str) -> list[str]:
  return [
    *('cache', *space.inputs[:2], '--mixture=corpus.mono'),
    *('--mixture=corpus.parallel', f'--output={out}', '--num_workers=1'),
  ]


def _finetune(
  run: pathlib.Path, directory: pathlib.Path, compiled: str
) -> Callable[[str], list[str]]:
  """Returns arguments of a grid of two tagging trials."""
  path = directory / 'en.conll'
  sentence = 'the\tDET\nsmall\tADJ\ndog\tNOUN\nsees\tVERB\nwater\tNOUN\n\n'
  path.write_text(16 * sentence)
  files = f"{{'en': {str(path)!r}}}"

  def arguments(out: str) -> list[str]:
    return [
      *('finetune', '--gin_file=finetune/tagging.gin', f'--init_from={run}'),
      *("--gin.FORMAT='conll'", f'--gin.TRAIN_FILES={files}'),
      *(f'--gin.DEV_FILES={files}', '--gin.LENGTH=16', '--gin.BATCH_SIZE=4'),
      *('--gin.TRAIN_STEPS=4', '--gin.EVAL_STEPS=4', *_FREQUENT_SAVES),
      *(
        '--grid=SEED=0,1',
        '--metric_for_best_model=tagging/accuracy/en',
        compiled,
      ),
      f'--output={out}',
    ]

  return arguments

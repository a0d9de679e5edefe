"""Two runs with all their artifacts, and a reader for each command.

Both runs have the same settings, names and shapes, and differ in text,
vocabulary and parameters. An artifact of the other run therefore fits but is
wrong. Readers read the same artifacts as the commands of their names, with the
same code, up to the first step.
"""

import contextlib
import io
import pathlib
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.training import tiny
from xlflax import cli, evaluate, integrity
from xlflax.data import dataset_config
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.featurizers import classification_featurizer
from xlflax.data.supervised.sources import example_source
from xlflax.data.tokenizers import base_vocabulary
from xlflax.evaluation import (
  checkpoint_selection,
  eval_task,
  result_store,
  text_sources,
)
from xlflax.evaluation.reports import run_pages
from xlflax.evaluation.tasks import perplexity
from xlflax.interop.huggingface import (
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.interop.huggingface.tensors import weights
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.objectives import objective_mixture
from xlflax.objectives.finetuning import sequence_classification
from xlflax.objectives.pretraining import masked_lm
from xlflax.runs import loaded_run
from xlflax.storage import checksums
from xlflax.trainer import Trainer
from xlflax.training import param_tree, training_setup
from xlflax.training.checkpointing import (
  checkpoints,
  data_fingerprint,
  directory_claim,
  metrics_file,
  run_directory,
)
from xlflax.training.initialization import averaging
from xlflax.training.initialization import init_from as initialization
from xlflax.training.optimization import optimizers
from xlflax.utils import errors

_LETTERS = 'abcdefghijklmnop'
_STEP = 2
_METRIC = 'perplexity/perplexity/en'


def write_workspace(root: pathlib.Path, number: int) -> None:
  """Writes corpus, vocabulary, cache, run, results and export."""
  root.mkdir(parents=True)
  _write_text(root, number)
  _run_command(
    'vocab',
    f'--corpus={root}/corpus',
    f'--output={root}/vocabulary',
    '--size=40',
    '--languages=de',
  )
  _run_command(
    'cache',
    f'--corpus={root}/corpus',
    f'--vocabulary={root}/vocabulary',
    '--mixture=corpus.mono',
    f'--output={root}/cache',
    '--num_workers=1',
  )
  _train(root, number)
  _write_result(root)
  checked = huggingface_export.check_export(root / 'run', model_type='bert')
  folder_writer.write_folder(checked, root / 'hf')


def _write_text(root: pathlib.Path, number: int) -> None:
  rng = np.random.default_rng(number)
  words = rng.permutation(list(_LETTERS))
  lines = [
    ' '.join(''.join(rng.choice(words[:9], 3)) for _ in range(6))
    for _ in range(40)
  ]
  (root / 'corpus/mono').mkdir(parents=True)
  (root / 'corpus/mono/en.txt').write_text(''.join(f'{x}\n' for x in lines))
  (root / 'labeled.tsv').write_text(
    ''.join(f'{x}\t{"no" if i % 2 else "yes"}\n' for i, x in enumerate(lines))
  )


def _run_command(*words: str) -> None:
  with contextlib.redirect_stdout(io.StringIO()):
    assert cli.main(list(words)) == 0, words


def make_trainer(root: pathlib.Path, number: int) -> Trainer:
  """Returns the trainer of a run; the label order differs per run."""
  labels = ('no', 'yes') if number else ('yes', 'no')
  datasets = (
    dataset_config.DatasetConfig(
      name='mono',
      mixture='corpus.mono',
      layout='blocks',
      length=12,
      batch_size=8,
    ),
    supervised_dataset.LabeledDatasetConfig(
      name='labeled',
      source=example_source.FileDataset(
        format='tsv',
        files={'en': str(root / 'labeled.tsv')},
        options={'columns': {'text': 0, 'label': 1}},
      ),
      featurizer=classification_featurizer.ClassificationFeaturizer(
        labels=labels
      ),
      length=24,
      batch_size=8,
    ),
  )
  entries = (
    objective_mixture.WeightedObjective(
      dataset='mono', objective=masked_lm.MaskedLM()
    ),
    objective_mixture.WeightedObjective(
      dataset='labeled',
      objective=sequence_classification.SequenceClassification(labels=labels),
    ),
  )
  config = tiny.make_model(
    max_position_embeddings=24, num_languages=None
  ).config
  return Trainer(
    model_dir=str(root / 'run'),
    model=encoder.Encoder(
      model_config.EncoderConfig(
        num_layers=config.num_layers,
        hidden_dim=16,
        mlp_dim=32,
        num_heads=2,
        max_position_embeddings=24,
      )
    ),
    objectives=tiny.make_mixture(*entries),
    datasets=datasets,
    vocabulary=str(root / 'vocabulary'),
    cache_dir=str(root / 'cache'),
    corpus=str(root / 'corpus'),
    num_train_steps=10,
    optimizer=optimizers.AdamW(learning_rate=0.01),
    partitioner=tiny.one_device(),
    seed=number,
  )


def _train(root: pathlib.Path, number: int) -> None:
  """Writes a run at step 2 with random parameters."""
  trainer = make_trainer(root, number)
  setup = training_setup.Setup(trainer)
  loaders = setup.open_loaders()
  input_description = data_fingerprint.describe_inputs(
    setup.vocabulary.hash, loaders
  )
  directory = root / 'run'
  directory_claim.claim_directory(setup, root / 'vocabulary', f'# {number}\n')
  data_fingerprint.record_inputs(directory, input_description, loaders)
  lines = ''.join(
    f'{{"step": {step}, "train": {{"loss": {number + 1}.5}}, '
    f'"eval": {{"{_METRIC}": {step * (1 - 2 * number)}}}}}\n'
    for step in (1, _STEP)
  )
  (directory / run_directory.METRICS).write_text(lines)
  saved = checkpoints.Checkpoints(
    directory, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  rng = np.random.default_rng(number)
  for step in (1, _STEP):
    state = jax.tree.map(
      lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) * 0.1, leaf.dtype),
      setup.factory.abstract,
    )
    saved.save(
      state.replace(step=jnp.int32(step)),
      {
        'inputs': input_description,
        'metrics_file': checksums.digest_content(lines),
      },
    )
  saved.close()
  for loader in loaders.values():
    loader.close()


def _task(root: pathlib.Path) -> eval_task.EvalTask:
  text = text_sources.CorpusText(directory=str(root / 'corpus'), split='train')
  return perplexity.Perplexity(source=text, length=12)


def _identity(root: pathlib.Path, run) -> dict[str, Any]:
  """Returns the identity that `ResultStore` computes."""
  identity = result_store.result_identity(
    _task(root), model=run.model, vocabulary_hash=run.vocabulary.hash, seed=0
  )
  checkpoint = result_store.checkpoint_identity(run.directory, _STEP)
  return identity | {'checkpoint': checkpoint}


def _write_result(root: pathlib.Path) -> None:
  run, *parts = _load_parts(root)
  result_store.write_result(
    root / 'run', _score(parts, root), step=_STEP, identity=_identity(root, run)
  )


def _score(parts: list[Any], root: pathlib.Path) -> eval_task.EvalResult:
  """Returns a number that depends on the model and the text, as a task does."""
  inputs = [*map(str, parts), _task(root).source.fingerprint()]
  return eval_task.EvalResult(
    metrics={'perplexity/en': zlib.crc32(repr(inputs).encode())}
  )


def _arrays(tree) -> dict[str, str]:
  return {
    name: checksums.digest_content(np.asarray(leaf).tobytes())
    for name, leaf in param_tree.flatten_params(tree).items()
  }


def _load_parts(root: pathlib.Path) -> list[Any]:
  """Returns the parts that `evaluate`, `analyze` and `encode` read."""
  run = loaded_run.load_run(root / 'run', partitioner=tiny.one_device())
  labels = [
    getattr(objective, 'labels', ()) for objective in run.objectives.values()
  ]
  parts = str(run.model), run.vocabulary.hash, labels, _arrays(run.params())
  return [run, *parts]


def _evaluate(root: pathlib.Path) -> Any:
  """Returns the parts of `xlflax evaluate` and whether its result matches.

  The text is the user's choice, so its results are stored separately.
  """
  evaluate.check_tasks([_task(root)])
  run, *parts = _load_parts(root)
  result = result_store.read_finished(
    run.directory, _identity(root, run), _STEP
  )
  return [*parts, result is None or result == _score(parts, root)]


def _encode(root: pathlib.Path) -> Any:
  return _load_parts(root)[1:]


def _resume(root: pathlib.Path) -> Any:
  """Runs `xlflax train` up to its first step."""
  setup = training_setup.Setup(make_trainer(root, 0))
  loaders = setup.open_loaders()
  try:
    input_description = data_fingerprint.describe_inputs(
      setup.vocabulary.hash, loaders
    )
    directory_claim.check_directory(
      setup, root / 'vocabulary', input_description
    )
    directory_claim.claim_directory(setup, root / 'vocabulary', '# 0\n')
    saved = checkpoints.Checkpoints(root / 'run')
    restored = saved.restore_last(setup.factory)
    saved.close()
  finally:
    for loader in loaders.values():
      loader.close()
  if restored is None or restored.step != _STEP:
    return None  # it resumes from an earlier checkpoint and reports it
  metrics_file.truncate_metrics(
    root / 'run', _STEP, written=restored.meta['metrics_file']
  )
  return [input_description, _arrays(restored.state), restored.meta]


def _finetune(root: pathlib.Path) -> Any:
  """Initializes a run from this run, with the vocabulary of this run."""
  setup = training_setup.Setup(
    make_trainer(root, 0).__class__(
      **{
        **{
          name: getattr(make_trainer(root, 0), name)
          for name in ('model', 'objectives', 'datasets', 'optimizer')
        },
        'model_dir': str(root / 'new'),
        'vocabulary': str(root / 'run/vocabulary'),
        'num_train_steps': 1,
        'partitioner': tiny.one_device(),
      }
    )
  )
  fresh = jax.tree.map(
    lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), setup.factory.abstract
  )
  state = initialization.initialize_from_runs(
    str(root / 'run'),
    fresh,
    setup.factory,
    model=setup.model,
    vocabulary=setup.vocabulary,
  )
  return [setup.vocabulary.hash, _arrays(state.params)]


def _export(root: pathlib.Path) -> Any:
  """Runs `xlflax convert to-hf`; the model card contains settings."""
  checked = huggingface_export.check_export(root / 'run', model_type='bert')
  folder_writer.write_folder(checked, root / 'out')
  return {
    path.name: checksums.digest_file(path)
    for path in (root / 'out').iterdir()
    if path.name != checksums.FILE
  }


def _average(root: pathlib.Path) -> Any:
  output = averaging.average_checkpoints(
    {root / 'run': [1, _STEP]}, root / 'mean'
  )
  return _arrays(
    loaded_run.load_run(output, partitioner=tiny.one_device()).params()
  )


def _import(root: pathlib.Path) -> Any:
  """Runs `xlflax convert from-hf` on the exported directory."""
  checked = huggingface_import.check_import(root / 'hf', languages=['en', 'de'])
  return [
    str(checked.config),
    checked.vocabulary.hash,
    _arrays(weights.load_parameters(checked.plan)),
  ]


def _report(root: pathlib.Path) -> Any:
  run_report = run_pages.read_run(root / 'run', name='run')
  settings = {key: str(value) for key, value in run_report.settings.items()}
  return [settings, dict(run_report.losses), str(run_report.results)]


def _best(root: pathlib.Path) -> Any:
  """Selects a checkpoint as `--checkpoint_steps=best` does."""
  run = loaded_run.load_run(root / 'run', partitioner=tiny.one_device())
  return checkpoint_selection.select_checkpoints(
    run, 'best', metric_for_best_model=_METRIC
  )


def _translate(root: pathlib.Path) -> Any:
  """Returns the verified caches and the trained languages."""
  directory = root / 'run'
  return [
    sorted(data_fingerprint.verified_signatures(directory)),
    data_fingerprint.recorded_languages(directory),
  ]


def _verify(root: pathlib.Path) -> Any:
  """Runs `xlflax verify` on all directories."""
  for name in ('run', 'cache', 'vocabulary', 'hf'):
    if not integrity.verify_directory(root / name).is_valid:
      raise errors.RunDirectoryError('xlflax verify found something', got=name)
  return 'whole'


READERS: dict[str, Callable[[pathlib.Path], Any]] = {
  'evaluate': _evaluate,
  'encode, analyze': _encode,
  'train (resume)': _resume,
  'train (from it)': _finetune,
  'to-hf': _export,
  'from-hf': _import,
  'average': _average,
  'report': _report,
  'best checkpoint': _best,
  'caches, languages': _translate,
  'verify': _verify,
}


def load_vocabulary(root: pathlib.Path) -> base_vocabulary.Vocabulary:
  """Loads the vocabulary of a workspace."""
  return base_vocabulary.Vocabulary.load(root / 'vocabulary')

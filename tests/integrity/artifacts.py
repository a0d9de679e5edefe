"""Tiny artifacts of each kind, created by the functions of the commands."""

import dataclasses
import functools
import json
import pathlib
import types

import jax
import jax.numpy as jnp
import numpy as np

from tests.analysis import analysis_report_test, fakes
from tests.data.supervised import supervised_loader_test
from tests.evaluation import fixtures
from tests.evaluation.reports import report_files_test as leaderboard_test
from tests.training import tiny
from xlflax.analysis import activation_cache, analysis_report
from xlflax.data.cache import cache_writer
from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.plain_text import corpus_directory_tasks
from xlflax.data.preprocessing import pipeline, text_filters, text_processing
from xlflax.data.tokenizers import base_vocabulary, vocabulary_training
from xlflax.evaluation import eval_task, result_store
from xlflax.evaluation.reports import report_files as reports
from xlflax.finetuning import grid_report, grid_trials, hyperparameter_grid
from xlflax.interop.huggingface import folder_writer, huggingface_export
from xlflax.models import encoder, encoder_config
from xlflax.storage import checksums, manifests
from xlflax.suites import suite_export, suite_result_store
from xlflax.suites import suite_report as suite_results
from xlflax.training.checkpointing import (
  checkpoints,
  config_serialization,
  data_fingerprint,
  objective_config,
  run_directory,
  saved_run,
)
from xlflax.training.optimization import optimizers

_LINES = '{"step": 1, "train": {"loss": 2.5}}\n'


@dataclasses.dataclass(frozen=True)
class _Settings:
  """The vocabulary field of a trainer and a number that varies."""

  vocabulary: str
  number: int


def write_corpus(directory: pathlib.Path, number: int) -> pathlib.Path:
  """Writes a German and English corpus; larger numbers add sentences."""
  pairs = []
  for language in ('de', 'en'):
    lines = fixtures.make_sentences(language, 40 + number)
    corpus_writer.write_monolingual(directory, language, [lines])
    pairs.append(lines)
  corpus_writer.write_parallel(
    directory, ('de', 'en'), zip(*pairs, strict=True)
  )
  corpus_writer.write_dictionary(directory, ('de', 'en'), [('Hund', 'dog')])
  return directory


def write_vocabulary(directory: pathlib.Path, number: int) -> None:
  text = write_corpus(directory.with_name(f'{directory.name}-text'), number)
  vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(text), directory, size=50 + number, num_threads=1
  )


def write_run(
  directory: pathlib.Path,
  number: int,
  *,
  finished: bool = True,
  parent: pathlib.Path | None = None,
) -> None:
  """Writes a run with two checkpoints, metrics and an evaluation result.

  Args:
    directory: Model directory.
    number: Number from which the content is generated, so that runs with
      different numbers have different content.
    finished: Whether to mark the run as finished.
    parent: Directory of the artifact that contains the run. If None, the run
      itself.
  """
  parent = parent or directory
  vocabulary_dir = parent.with_name(f'{parent.name}-vocabulary')
  if not vocabulary_dir.exists():
    write_vocabulary(vocabulary_dir, number)
  loaded = base_vocabulary.Vocabulary.load(vocabulary_dir)
  settings = config_serialization.to_json_config(
    _Settings(str(vocabulary_dir), number)
  )
  run_directory.claim_run_directory(
    directory, settings, gin_config=f'A = {number}\n'
  )
  model = encoder.Encoder(encoder_config.EncoderConfig(**_SIZES))
  model = model.clone(
    config=encoder_config.with_vocabulary(model.config, loaded.spec)
  )
  run_directory.write_model(directory, model)
  objective_config.write_objectives(directory, [])
  run_directory.copy_vocabulary(vocabulary_dir, directory)
  fingerprint = {'vocabulary': loaded.hash, 'datasets': {}}
  data_fingerprint.record_inputs(directory, fingerprint, {})
  (directory / run_directory.METRICS).write_text(_LINES * (1 + number))
  _checkpoints(directory, model, fingerprint, number)
  identity = {
    **dict.fromkeys(result_store._SHARED, 0),
    'task': {'name': 'probe'},
    'split': 'test',
    'checkpoint': result_store.checkpoint_identity(directory, 2),
  }
  result_store.write_result(
    directory,
    eval_task.EvalResult(
      metrics={'accuracy': 0.25 + number}, files={'en.tsv': f'a\t{number}\n'}
    ),
    step=2,
    identity=identity,
  )
  if finished:
    saved_run.mark_finished(directory, 2)


_SIZES = dict(
  num_layers=1,
  hidden_dim=8,
  mlp_dim=8,
  num_heads=2,
  max_position_embeddings=12,
  position_offset=1,
)


@functools.cache
def _params(model):
  return jax.tree.map(
    np.asarray, tiny.numbered(tiny.make_factory(model=model).init_params())
  )


def _checkpoints(directory, model, fingerprint, number) -> None:
  options = checkpoints.CheckpointOptions(
    enable_async_checkpointing=False, metric_for_best_model='a/b', max_to_keep=1
  )
  saved = checkpoints.Checkpoints(directory, options)
  state = tiny.regression_state(optimizers.AdamW(learning_rate=0.1))
  state = state.replace(
    params=jax.tree.map(lambda leaf: leaf + number, state.params)
  )
  metrics_digest = checksums.digest_file(directory / run_directory.METRICS)
  for step, score in ((1, 0.9), (2, 0.5)):
    saved.save(
      state.replace(step=jnp.int32(step)),
      {'seed': number, 'metrics_file': metrics_digest, 'inputs': fingerprint},
      {'a/b': score + number},
    )
  saved.close()


def write_cache(directory: pathlib.Path, number: int) -> None:
  """Writes a token cache of three tasks, with cached labeled examples."""
  text = directory.with_name('cache-text')
  vocabulary_dir = directory.with_name('cache-vocabulary')
  if number:
    text, vocabulary_dir = (
      p.with_name(f'{p.name}-1') for p in (text, vocabulary_dir)
    )
  write_corpus(text, number)
  write_vocabulary(vocabulary_dir, number)
  cache_writer.write_cache(
    cache_writer.Plan(
      directory=directory,
      mixtures=['corpus.mono', 'corpus.parallel'],
      vocabulary=base_vocabulary.Vocabulary.load(vocabulary_dir),
      open_tasks=functools.partial(
        corpus_directory_tasks.CorpusTasks, str(text)
      ),
      shard_size=512,
    )
  )
  write_rows(directory, number)


def write_rows(directory: pathlib.Path, number: int) -> None:
  source = supervised_loader_test.FakeSource(
    sizes=(('de', 3 + number), ('en', 4))
  )
  supervised_loader_test._open(cache_dir=directory, source=source)


def write_preprocessed_corpus(directory: pathlib.Path, number: int) -> None:
  text = write_corpus(directory.with_name(f'{directory.name}-text'), number)
  pipeline.preprocess_corpus(
    corpus_directory.Corpus(text),
    directory,
    processing=text_processing.TextProcessing(moses=True),
    filters=text_filters.TextFilters(min_characters=4 + number),
  )


def write_grid(
  directory: pathlib.Path, number: int, *, parent: pathlib.Path | None = None
) -> None:
  """Writes two trials with their records and the report of the grid."""
  runner = grid_trials.TrialRunner(output=directory, configuration=None)
  report = grid_report.GridReport(select=None)
  for seed in (0, 1):
    trial = hyperparameter_grid.Trial({'SEED': str(seed)})
    write_run(runner.directory(trial), number, parent=parent or directory)
    result = grid_trials.TrialResult(
      trial=trial,
      directory=runner.directory(trial),
      status=grid_trials.Status.FINISHED,
      config=f'{number} 2 None',
      step=2,
      seconds=1.5,
    )
    runner._write(result)
    report = report.with_trial(result)
    report.write(directory)
  grid_report.write_page(directory, {'': report})


def write_suite(directory: pathlib.Path, number: int) -> None:
  """Writes a suite of a task without training and a task with a grid."""
  results = [
    suite_results.TaskResult(
      task=task,
      family='f',
      label='mlm',
      step=20,
      values={'accuracy/en': (0.5 + number / 10,)},
      main=('accuracy',),
    )
    for task in ('plain', 'tuned')
  ]
  for result in results:
    suite_result_store.write(result, directory)
  report = suite_results.SuiteReport(
    suite='made', source_language='en', results=tuple(results)
  )
  suite_export.write(report, directory)
  write_grid(directory / 'mlm@20/tuned', number, parent=directory)


def write_evaluation(directory: pathlib.Path, number: int) -> None:
  """Writes evaluation results without the other files of their run."""
  source = directory.with_name(f'{directory.name}-run')
  write_run(source, number)
  source.joinpath('eval').rename(_new(directory) / 'eval')


def write_report(directory: pathlib.Path, number: int) -> None:
  table = leaderboard_test._table('a', shift=number / 10)
  reports.write_report(directory, [table], samples=10)


def write_analysis(directory: pathlib.Path, number: int) -> None:
  content = analysis_report_test._analysis(notes=[f'number {number}'])
  analysis_report.write(directory, content, command=['xlflax', str(number)])


def write_states(directory: pathlib.Path, number: int) -> None:
  """Writes cached sentence states of two blocks, computed by a fake model."""
  all_states = directory.with_name(f'{directory.name}-all')

  class Reader(activation_cache.SentenceReader):
    def _compute(self, opened, ref, texts, language):
      for start in range(0, len(texts), self.block):
        count = len(texts[start : start + self.block])
        yield np.full((2, count, 3), start + number, np.float32)

  reader = Reader(directory=str(all_states), block=2)
  opened = fakes.FakeModels()
  ref = fakes.model_refs.ModelRef(f'run{number}', 1)
  assert len(list(reader.blocks(opened, ref, ['a', 'b', 'c'], 'en'))) == 2
  [folder] = all_states.iterdir()
  folder.rename(directory)


def write_export(directory: pathlib.Path, number: int) -> None:
  """Writes the exported model of a run with freshly initialized parameters."""
  run_dir = directory.with_name(f'{directory.name}-run')
  vocabulary_dir = directory.with_name(f'{directory.name}-vocabulary')
  write_vocabulary(vocabulary_dir, number)
  spec = base_vocabulary.Vocabulary.load(vocabulary_dir).spec
  model = encoder.Encoder(encoder_config.EncoderConfig(**_SIZES))
  model = model.clone(config=encoder_config.with_vocabulary(model.config, spec))
  run_directory.write_model(run_dir, model)
  run_directory.copy_vocabulary(vocabulary_dir, run_dir)
  params = fixtures.nn.meta.unbox(
    fixtures.model_params.init_params(model, jax.random.key(number))
  )
  saved = checkpoints.Checkpoints(
    run_dir, checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  state = tiny.regression_state(optimizers.AdamW(learning_rate=0.1))
  saved.save(state.replace(params={'model': params}), {})
  saved.close()
  limit = folder_writer.MAX_SHARD_BYTES  # as the command passes it
  folder_writer.write_folder(
    huggingface_export.check_export(run_dir), directory, max_shard_bytes=limit
  )


def _new(directory: pathlib.Path) -> pathlib.Path:
  directory.mkdir(parents=True)
  return directory


def _row_folder(directory: pathlib.Path, number: int) -> None:
  all_rows = directory.with_name(f'{directory.name}-all')
  write_rows(all_rows, number)
  [folder] = (all_rows / 'labeled').iterdir()
  folder.rename(directory)


Kind = manifests.Kind


def write_pretraining(directory: pathlib.Path, number: int) -> None:
  write_vocabulary(directory / 'vocabulary', number)
  write_cache(directory / 'cache', number)
  write_run(directory / 'model', number)
  record = json.dumps({'asked': {'steps': 5 + number}, 'choice': {}})
  manifests.write_files(directory, Kind.PRETRAINING, {'pretrain.json': record})


MAKERS: types.MappingProxyType = types.MappingProxyType(
  {
    Kind.RUN: write_run,
    Kind.CACHE: write_cache,
    Kind.ROWS: _row_folder,
    Kind.VOCABULARY: write_vocabulary,
    Kind.CORPUS: write_preprocessed_corpus,
    Kind.GRID: write_grid,
    Kind.SUITE: write_suite,
    Kind.EVALUATION: write_evaluation,
    Kind.REPORT: write_report,
    Kind.ANALYSIS: write_analysis,
    Kind.STATES: write_states,
    Kind.EXPORT: write_export,
    Kind.PRETRAINING: write_pretraining,
  }
)

"""The demo's numbers as one JSON document, and as a table."""

import importlib.metadata
import itertools
import pathlib
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import rich.table

from xlflax import evaluate as evaluate_lib
from xlflax.demo import catalogs
from xlflax.evaluation import base, sources, states
from xlflax.evaluation import results as results_lib
from xlflax.foundation import console_tables, errors
from xlflax.models import api as models_api
from xlflax.similarity import cosine as similarity
from xlflax.training.checkpointing import run as run_lib

MODELS = ('untrained', 'trained')
# The command to go on with one's own text.
OWN_TEXT = 'xlflax pretrain corpus --output=runs/own --hours=1'
_PACKAGES = 'xlflax jax flax optax sentencepiece seqio Django pycountry'.split()


def make(
  settings,
  *,
  split: catalogs.Split,
  results: evaluate_lib.Report,
  examples: Sequence[Mapping[str, str]],
  steps: int,
  seconds: Mapping[str, float],
) -> dict[str, Any]:
  """The content of `summary.json`.

  Args:
    settings: of the demo, see `pipeline.Settings`.
    split: the text.
    results: of retrieval and perplexity, untrained and after `steps`.
    examples: as `nearest_messages` returns them.
    steps: training steps.
    seconds: phase -> seconds it took.

  Returns:
    JSON values: 'languages'; 'retrieval' and 'perplexity', each 'untrained'
    and 'trained' by language and 'mean'; 'layers' (model -> language ->
    retrieval accuracy of each layer); and how it came about.

  Raises:
    CorpusError: a part of the evaluation failed.
  """
  if results.failures:
    raise errors.CorpusError(
      'The evaluation of the demo failed',
      got='; '.join(map(str, results.failures)),
    )
  run = run_lib.open_run(settings.model_dir)
  others = [code for code in settings.languages if code != catalogs.ENGLISH]
  return {
    'languages': list(settings.languages),
    'language_names': {
      code: catalogs.name(code) for code in settings.languages
    },
    'retrieval': _scores(results, 'retrieval', 'accuracy', others, steps),
    'perplexity': _scores(
      results, 'perplexity', 'perplexity', settings.languages, steps
    ),
    'layers': {
      model: _layers(result, others)
      for model, result in _by_model(results, 'retrieval', steps).items()
    },
    'layer': run.model.config.num_layers,
    'examples': list(examples),
    'corpus': _corpus(split),
    'settings': _settings(settings, run, steps),
    'seconds': dict(seconds),
    'versions': _versions(),
    'commands': _commands(settings),
  }


def nearest_messages(
  model_dir: str | pathlib.Path, corpus: str | pathlib.Path
) -> list[dict[str, str]]:
  """For one message of each language the nearest English message.

  Message i of the test split is taken for the i-th pair, good or bad.

  Args:
    model_dir: a run; its last checkpoint is read.
    corpus: corpus directory with pairs of English in its test split.

  Returns:
    Dicts with 'language', 'query', 'answer' (its English side) and 'found'.
  """
  run = run_lib.open_run(model_dir)
  subject = base.Subject(
    model=run.model,
    params=run.restore_params(run.steps[-1]),
    vocabulary=run.vocabulary,
  )
  source = sources.CorpusPairs(directory=str(corpus))
  queries, languages, answers = [], [], []
  for index, pair in enumerate(source.pairs()):
    text = source.load(pair)
    place = index % len(text.first)
    queries.append(text.second[place])
    answers.append(text.first[place])
    languages.append(pair[1])
  english = tuple(dict.fromkeys(source.load(source.pairs()[0]).first))
  nearest = _nearest(subject, queries, languages, english)
  return [
    {
      'language': language,
      'query': query,
      'answer': answer,
      'found': english[index],
    }
    for language, query, answer, index in zip(
      languages, queries, answers, nearest, strict=True
    )
  ]


def table(summary: Mapping[str, Any]) -> rich.table.Table:
  """Both scores of every language, for the terminal."""
  heads = itertools.product(('retrieval', 'perplexity'), MODELS)
  made = console_tables.made(
    ['language'],
    ['\n'.join(head) for head in heads],
    title='Before and after training',
  )
  retrieval, perplexity = summary['retrieval'], summary['perplexity']
  for language in [*summary['languages'], 'mean']:
    if language == 'mean':
      scores = [retrieval['mean'], perplexity['mean']]
      cells = [score[model] for score in scores for model in MODELS]
    else:
      cells = [
        score[model].get(language)
        for score in (retrieval, perplexity)
        for model in MODELS
      ]
    made.add_row(
      language,
      *(
        '' if cell is None else f'{cell:.3f}' if index < 2 else f'{cell:,.0f}'
        for index, cell in enumerate(cells)
      ),
      end_section=language == summary['languages'][-1],
    )
  return made


def _by_model(
  report: evaluate_lib.Report, task: str, steps: int
) -> dict[str, base.EvalResult]:
  found = report.results[task]
  return {'untrained': found[results_lib.UNTRAINED], 'trained': found[steps]}


def _scores(
  report, task: str, metric: str, languages, steps: int
) -> dict[str, dict[str, float]]:
  by_model = _by_model(report, task, steps)
  scores = {
    model: {code: result.metrics[f'{metric}/{code}'] for code in languages}
    for model, result in by_model.items()
  }
  return scores | {
    'mean': {
      model: result.metrics[f'{metric}/mean']
      for model, result in by_model.items()
    }
  }


def _layers(result: base.EvalResult, languages) -> dict[str, list[float]]:
  """Accuracy of each layer, the mean of both directions."""
  layers: dict[str, dict[int, list[float]]] = {code: {} for code in languages}
  for row in result.tables['layers']:
    layers[row['pair']].setdefault(row['layer'], []).append(row['accuracy'])
  return {
    code: [sum(values) / len(values) for _, values in sorted(by_layer.items())]
    for code, by_layer in layers.items()
  }


def _corpus(split: catalogs.Split) -> dict[str, Any]:
  pairs = {code: len(texts) for code, texts in split.train.items()}
  return {
    'training_pairs': pairs,
    'training_pairs_total': sum(pairs.values()),
    'test_messages': len(next(iter(split.test.values()))),
    'validation_messages': len(next(iter(split.validation.values()))),
  }


def _settings(settings, run: run_lib.SavedRun, steps: int) -> dict[str, Any]:
  config = run.model.config
  shapes = models_api.abstract_params(run.model)
  return {
    'model_dir': str(settings.model_dir),
    'steps': steps,
    'gin_files': ', '.join(settings.gin_files),
    'gin_bindings': ', '.join(settings.gin_bindings),
    'layers': config.num_layers,
    'hidden_dim': config.hidden_dim,
    'vocabulary': run.vocabulary.spec.size,
    'parameters': models_api.count_params(shapes),
    'device': jax.devices()[0].device_kind,
    'devices': jax.device_count(),
  }


def _versions() -> dict[str, str]:
  versions = {'python': platform.python_version()}
  for package in _PACKAGES:
    try:
      versions[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      continue
  return versions


def _commands(settings) -> list[str]:
  """Commands to go on with, in this very place."""
  corpus, model_dir = settings.path('corpus'), settings.model_dir
  return [
    '# the same numbers, with other poolings or layers',
    f'xlflax evaluate --model_dir={model_dir} --tasks=retrieval '
    f'--corpus={corpus} --gin.retrieval.Retrieval.layer=1',
    '# another run on the same text',
    f'xlflax train --gin_file={settings.gin_files[-1]} '
    f'--model_dir={model_dir}_2 --corpus={corpus} '
    f'--vocabulary={settings.path("vocabulary")} '
    f'--cache={settings.path("cache")} --gin.LEARNING_RATE=1e-3',
    '# curves',
    f'tensorboard --logdir={model_dir}',
    '# your own text: corpus/mono/<language>.txt, a sentence a line',
    OWN_TEXT,
  ]


def _nearest(subject: base.Subject, queries, languages, english) -> list[int]:
  """Indices into `english` by cosine of the last layer's states."""
  ids = [subject.vocabulary.language_id(code) for code in languages]
  ids += [subject.vocabulary.language_id('en')] * len(english)
  vectors = states.sentence_states(subject, [*queries, *english], ids).states[
    -1
  ]
  return similarity.nearest(
    vectors[: len(queries)], vectors[len(queries) :]
  ).forward.tolist()

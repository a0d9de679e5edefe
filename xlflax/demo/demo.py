"""Real text to report: what `xlflax demo` runs, phase by phase.

Every phase calls the public function behind a command of its own, so that
what the demo does can be repeated, and changed, with those commands.
"""

import contextlib
import dataclasses
import functools
import logging
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import rich.console
import rich.rule

from xlflax import config, console_tables, paths, trainer
from xlflax import evaluate as evaluate_lib
from xlflax.data.corpus import directory as corpus_lib
from xlflax.data.seqio_tasks import host_tensorflow
from xlflax.data.vocabularies import training as vocabulary_training
from xlflax.demo import catalogs, report, summary
from xlflax.evaluation import sources
from xlflax.evaluation.tasks import perplexity, retrieval
from xlflax.training import run_directory

GIN_FILE = 'demo/demo.gin'
MIXTURES = ('corpus.mono', 'corpus.parallel')
_PHASES = ('corpus', 'vocabulary', 'cache', 'training', 'evaluation', 'report')
_MASK_DRAWS = 8  # the held-out text is short
_ENTRIES = 700  # of the vocabulary, for each language


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """What a demo run is made of.

  Attributes:
    model_dir: the run's directory; the report is in its folder `report`.
    languages: codes, English among them.
    vocabulary_size: entries of the vocabulary; None: 700 a language.
    num_test: messages held out for the evaluation, in every language.
    gin_files: configuration of the training.
    gin_bindings: 'NAME=VALUE', after the files.
    gin_search_paths: folders to look gin files up in.
  """

  model_dir: str = 'runs/demo'
  languages: tuple[str, ...] = catalogs.LANGUAGES
  vocabulary_size: int | None = None
  num_test: int = 100
  gin_files: Sequence[str] = (GIN_FILE,)
  gin_bindings: Sequence[str] = ()
  gin_search_paths: Sequence[str] = ()

  @property
  def data_dir(self) -> pathlib.Path:
    """Where corpus, vocabulary and cache lie: beside the run."""
    path = paths.local(self.model_dir, where='--model_dir')
    return path.with_name(f'{path.name}_data')

  def path(self, name: str) -> str:
    """The folder `name` of `data_dir`."""
    return str(self.data_dir / name)


def run(settings: Settings) -> dict[str, Any]:
  """Runs all phases; what an earlier call finished is not done again.

  Returns:
    The summary, as `report/summary.json` has it.

  Raises:
    XlflaxError: a package is missing, or the directory holds another run.
  """
  phases = _Phases()
  # What is missing or misspelt is found before anything is written.
  catalogs.check_packages()
  configuration = _configured(settings)
  with phases.begin('corpus', 'Messages of Django and names of pycountry'):
    split = catalogs.build_corpus(
      settings.path('corpus'),
      languages=settings.languages,
      num_test=settings.num_test,
    )
    logging.info(
      '%d languages, %d pairs of messages: %s',
      len(settings.languages),
      _num_pairs(split),
      settings.path('corpus'),
    )
  with phases.begin('vocabulary', 'SentencePiece over all languages'):
    vocabulary = _make_vocabulary(settings)
  with phases.begin('cache', 'Tokenising once'):
    _write_cache(settings, vocabulary)
  with phases.begin('training', 'MLM, TLM and sentence alignment'):
    result = configuration.build(trainer.Trainer).train(
      gin_config=configuration.operative
    )
  with phases.begin('evaluation', 'Held-out messages, untrained and trained'):
    results = _evaluate(settings)
    found = summary.nearest_messages(
      settings.model_dir, settings.path('corpus')
    )
  with phases.begin('report', 'Tables and pictures'):
    made = summary.make(
      settings,
      split=split,
      results=results,
      examples=found,
      steps=result['step'],
      seconds=phases.seconds,
    )
    page = report.write_report(
      pathlib.Path(settings.model_dir) / run_directory.REPORT,
      made,
      report.read_losses(
        pathlib.Path(settings.model_dir) / run_directory.METRICS
      ),
    )
  phases.end(made, page)
  return made


class _Phases:
  """Headings, and how long each phase took."""

  def __init__(self):
    self.seconds: dict[str, float] = {}
    self._console = rich.console.Console(stderr=True)

  @contextlib.contextmanager
  def begin(self, name: str, what: str):
    number = _PHASES.index(name) + 1
    self._console.print(
      rich.rule.Rule(f'{number}/{len(_PHASES)}  {name}: {what}', align='left')
    )
    start = time.monotonic()
    yield
    self.seconds[name] = round(time.monotonic() - start, 2)
    logging.info('%s: %.1f s', name, self.seconds[name])

  def end(self, made: dict[str, Any], page: pathlib.Path) -> None:
    console = rich.console.Console()
    console_tables.show(summary.table(made), console)
    console.print(
      f'{sum(self.seconds.values()):.0f} seconds. Report: {page}',
      soft_wrap=True,
    )


def _configured(settings: Settings) -> config.Configuration:
  macros = {
    'MODEL_DIR': settings.model_dir,
    'CORPUS': settings.path('corpus'),
    'VOCABULARY': settings.path('vocabulary'),
    'CACHE_DIR': settings.path('cache'),
  }
  return config.load(
    settings.gin_files,
    settings.gin_bindings,
    settings.gin_search_paths,
    macros=macros,
  )


def _make_vocabulary(settings: Settings):
  vocabulary = vocabulary_training.train_vocabulary(
    corpus_lib.Corpus(settings.path('corpus')),
    settings.path('vocabulary'),
    size=settings.vocabulary_size or _ENTRIES * len(settings.languages),
    character_coverage=0.9999,
    alpha=1.0,
    num_threads=2,
    overwrite=True,
  )
  logging.info(
    '%d entries: %s', vocabulary.spec.size, settings.path('vocabulary')
  )
  return vocabulary


def _write_cache(settings: Settings, vocabulary) -> None:
  host_tensorflow.load()
  from xlflax.data.cache import writer as cache_writer
  from xlflax.data.seqio_tasks import registration

  tasks = cache_writer.write_cache(
    cache_writer.Plan(
      directory=pathlib.Path(settings.path('cache')),
      mixtures=MIXTURES,
      vocabulary=vocabulary,
      register=functools.partial(
        registration.register_tasks, settings.path('corpus'), ()
      ),
      changed=cache_writer.Changed.REPLACE,
    )
  )
  logging.info('%d tasks: %s', len(tasks), settings.path('cache'))


def _evaluate(settings: Settings) -> evaluate_lib.Report:
  directory = settings.path('corpus')
  tasks = (
    retrieval.Retrieval(source=sources.CorpusPairs(directory=directory)),
    perplexity.Perplexity(
      source=sources.CorpusText(directory=directory),
      length=64,
      draws=_MASK_DRAWS,
    ),
  )
  return evaluate_lib.evaluate(
    model_dir=settings.model_dir, tasks=tasks, untrained=True
  )


def _num_pairs(split: catalogs.Split) -> int:
  return sum(map(len, split.train.values()))

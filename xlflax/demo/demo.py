"""Real text to report: what `xlflax demo` runs, phase by phase.

Every phase calls the public function behind a command of its own, so that
what the demo does can be repeated, and changed, with those commands.
"""

import contextlib
import logging
import pathlib
import time
from typing import Any

import rich.console
import rich.rule

from xlflax import evaluate as evaluate_lib
from xlflax import trainer
from xlflax.demo import catalogs, pipeline, report, summary
from xlflax.evaluation import sources
from xlflax.evaluation.tasks import perplexity, retrieval
from xlflax.foundation import console_tables
from xlflax.training.checkpointing import run_directory

_PHASES = ('corpus', 'vocabulary', 'cache', 'training', 'evaluation', 'report')
_MASK_DRAWS = 8  # the held-out text is short


def run(settings: pipeline.Settings) -> dict[str, Any]:
  """Runs all phases; what an earlier call finished is not done again.

  Args:
    settings: of text and training.

  Returns:
    The summary, as `report/summary.json` has it.

  Raises:
    XlflaxError: a package is missing, or the directory holds another run.
  """
  phases = _Phases()
  # What is missing or misspelt is found before anything is written.
  catalogs.check_packages()
  pipeline.configured(settings)
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
    vocabulary = pipeline.make_vocabulary(settings)
  with phases.begin('cache', 'Tokenising once'):
    pipeline.write_cache(settings, vocabulary)
  with phases.begin('training', 'MLM, TLM and sentence alignment'):
    configuration = pipeline.configured(settings)
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
      report.read_losses(pathlib.Path(settings.model_dir)),
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
    console.print('With your own text:')
    console.print(f'  {summary.OWN_TEXT}', soft_wrap=True, highlight=False)


def _evaluate(settings: pipeline.Settings) -> evaluate_lib.Report:
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

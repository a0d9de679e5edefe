"""Real text to report: what `xlflax demo` runs, phase by phase.

Every phase calls the public function behind a command of its own, so that
what the demo does can be repeated, and changed, with those commands.
"""

import contextlib
import json
import logging
import pathlib
import time
from typing import Any

import rich.console
import rich.rule

from xlflax import evaluate as evaluate_lib
from xlflax import trainer
from xlflax.demo import (
  catalogs,
  layer_similarity,
  pipeline,
  report,
  scaling,
  summary,
  zero_shot,
)
from xlflax.evaluation import sources
from xlflax.evaluation.tasks import perplexity, retrieval
from xlflax.foundation import console_tables
from xlflax.storage import paths
from xlflax.training.checkpointing import run_directory

_USUAL = ('corpus', 'vocabulary', 'cache', 'training', 'evaluation', 'report')
_PHASES = (
  *_USUAL[:3], 'scale', *_USUAL[3:5], 'tagging', 'layers', 'report'
)  # fmt: skip
_SCALE = 'scale.json'  # what was chosen, so that a stopped run can go on
_TIMED = 3  # steps that are timed
_TRAINING_SHARE, _TAGGING_SHARE = 0.5, 0.1  # of the time that is given
_MASK_DRAWS = 8  # the held-out text is short


def run(
  settings: pipeline.Settings, *, minutes: float | None = None
) -> dict[str, Any]:
  """Runs all phases; what an earlier call finished is not done again.

  Args:
    settings: of text and training.
    minutes: scales the model and its steps to so much time, and adds what
      `_more` does; None: as the gin files say.

  Returns:
    The summary, as `report/summary.json` has it.

  Raises:
    XlflaxError: a package is missing, or the directory holds another run.
  """
  phases = _Phases(scaled=minutes is not None)
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
  scale = _scale(settings, minutes, phases) if minutes else None
  with phases.begin('training', 'MLM, TLM and sentence alignment'):
    configuration = pipeline.configured(
      settings, scale.bindings if scale else ()
    )
    result = configuration.build(trainer.Trainer).train(
      gin_config=configuration.operative
    )
  with phases.begin('evaluation', 'Held-out messages, untrained and trained'):
    results = _evaluate(settings)
    found = summary.nearest_messages(
      settings.model_dir, settings.path('corpus')
    )
  more = _more(settings, scale, minutes, phases) if scale and minutes else {}
  with phases.begin('report', 'Tables and pictures'):
    made = (
      summary.make(
        settings,
        split=split,
        results=results,
        examples=found,
        steps=result['step'],
        seconds=phases.seconds,
      )
      | more
    )
    page = report.write_report(
      pathlib.Path(settings.model_dir) / run_directory.REPORT,
      made,
      report.read_losses(pathlib.Path(settings.model_dir)),
    )
  phases.end(made, page)
  return made


def _scale(
  settings: pipeline.Settings, minutes: float, phases: '_Phases'
) -> scaling.Scale:
  """What is trained; a run that was stopped goes on with what it chose."""
  path = settings.data_dir / _SCALE
  if path.is_file():
    record = json.loads(path.read_text(encoding='utf-8'))
    if record.pop('minutes') == minutes:
      return scaling.Scale(**record)
  with phases.begin('scale', f'What fits into {minutes:g} minutes'):

    def measure(size: scaling.Size) -> float:
      made = pipeline.configured(
        settings, (*size.bindings, *scaling.steps_bindings(scaling.MOST))
      ).build(trainer.Trainer)
      return made.benchmark(steps=_TIMED)['seconds_per_step']['median']

    scale = scaling.choose(
      measure, seconds=_TRAINING_SHARE * phases.left(minutes)
    )
    logging.info(
      '%d steps of %d layers of %d',
      scale.steps,
      scale.num_layers,
      scale.hidden_dim,
    )
  paths.write_atomically(
    path, json.dumps({'minutes': minutes} | scale.to_json(), indent=2) + '\n'
  )
  return scale


def _more(
  settings: pipeline.Settings,
  scale: scaling.Scale,
  minutes: float,
  phases: '_Phases',
) -> dict[str, Any]:
  """Zero-shot tagging of made-up languages, and a picture of CKA."""
  steps = scaling.steps_within(
    _TAGGING_SHARE * 60 * minutes, scale.smallest_seconds_per_step
  )
  with phases.begin('tagging', 'Made-up languages, learnt from one of them'):
    accuracy = zero_shot.tagging_accuracy(settings.data_dir, steps=steps)
  with phases.begin('layers', 'Similarity of layers across languages (CKA)'):
    similarity = layer_similarity.make(
      settings.model_dir, settings.path('corpus'), settings.languages
    )
  return {'tagging': accuracy, 'cka': similarity}


class _Phases:
  """Headings, and how long each phase took."""

  def __init__(self, *, scaled: bool):
    self.seconds: dict[str, float] = {}
    self._start = time.monotonic()
    self._names = _PHASES if scaled else _USUAL
    self._console = rich.console.Console(stderr=True)

  @contextlib.contextmanager
  def begin(self, name: str, what: str):
    number = self._names.index(name) + 1
    self._console.print(
      rich.rule.Rule(
        f'{number}/{len(self._names)}  {name}: {what}', align='left'
      )
    )
    start = time.monotonic()
    yield
    self.seconds[name] = round(time.monotonic() - start, 2)
    logging.info('%s: %.1f s', name, self.seconds[name])

  def left(self, minutes: float) -> float:
    """Seconds that are left of the time that is given."""
    return max(0.0, 60 * minutes - (time.monotonic() - self._start))

  def end(self, made: dict[str, Any], page: pathlib.Path) -> None:
    console = rich.console.Console()
    console_tables.show(summary.table(made), console)
    console.print(
      f'{sum(self.seconds.values()):.0f} seconds. Report: {page}',
      soft_wrap=True,
    )
    console.print('With your own text:')
    for command in summary.OWN_TEXT:
      console.print(f'  {command}', soft_wrap=True, highlight=False)


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

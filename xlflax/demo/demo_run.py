"""Real text to scores: what `xlflax demo` runs, phase by phase.

Every phase calls the public function behind a command of its own, so that
what the demo does can be repeated, and changed, with those commands.
"""

import contextlib
import logging
import time

import rich.console
import rich.rule

from xlflax import evaluate as evaluate_lib
from xlflax import trainer
from xlflax.demo import demo_corpus, demo_pipeline, retrieval_examples
from xlflax.evaluation import result_tables, text_sources
from xlflax.evaluation.tasks import perplexity, retrieval_task
from xlflax.utils import errors

_PHASES = ('corpus', 'vocabulary', 'cache', 'training', 'evaluation')
_MASK_DRAWS = 8  # the held-out text is short


def run(settings: demo_pipeline.Settings) -> evaluate_lib.Report:
  """Runs all phases; what an earlier call finished is not done again.

  Args:
    settings: of text and training.

  Returns:
    Retrieval and perplexity of the untrained and the trained model, which
    `eval/report.html` of the run shows.

  Raises:
    XlflaxError: a package is missing, the directory holds another run, or a
      part of the evaluation failed.
  """
  phases = _Phases()
  # What is missing or misspelt is found before anything is written.
  demo_corpus.check_packages()
  demo_pipeline.configured(settings)
  with phases.begin('corpus', 'Messages of Django and names of pycountry'):
    split = demo_corpus.build_corpus(
      settings.path('corpus'),
      languages=settings.languages,
      num_test=settings.num_test,
    )
    logging.info(
      '%d languages, %d pairs of messages: %s',
      len(settings.languages),
      sum(map(len, split.train.values())),
      settings.path('corpus'),
    )
  with phases.begin('vocabulary', 'SentencePiece over all languages'):
    vocabulary = demo_pipeline.make_vocabulary(settings)
  with phases.begin('cache', 'Tokenising once'):
    demo_pipeline.write_cache(settings, vocabulary)
  with phases.begin('training', 'MLM, TLM and sentence alignment'):
    configuration = demo_pipeline.configured(settings)
    configuration.build(trainer.Trainer).train(
      gin_config=configuration.operative
    )
  with phases.begin('evaluation', 'Held-out messages, untrained and trained'):
    report = _evaluate(settings)
    found = retrieval_examples.find(settings.model_dir, settings.path('corpus'))
  console = rich.console.Console()
  result_tables.print_tables(report.tasks, report.results, console)
  console.print(retrieval_examples.table(found))
  for line in (
    f'{phases.seconds:.0f} seconds. All results, with pictures: '
    f'{settings.model_dir}/eval/report.html',
    *_commands(settings),
  ):
    console.print(line, soft_wrap=True, highlight=False, markup=False)
  return report


class _Phases:
  """Headings, and how long all phases took."""

  def __init__(self):
    self.seconds = 0.0
    self._console = rich.console.Console(stderr=True)

  @contextlib.contextmanager
  def begin(self, name: str, what: str):
    number = _PHASES.index(name) + 1
    self._console.print(
      rich.rule.Rule(f'{number}/{len(_PHASES)}  {name}: {what}', align='left')
    )
    start = time.monotonic()
    yield
    seconds = time.monotonic() - start
    self.seconds += seconds
    logging.info('%s: %.1f s', name, seconds)


def _evaluate(settings: demo_pipeline.Settings) -> evaluate_lib.Report:
  directory = settings.path('corpus')
  tasks = (
    retrieval_task.Retrieval(
      source=text_sources.CorpusPairs(directory=directory)
    ),
    perplexity.Perplexity(
      source=text_sources.CorpusText(directory=directory),
      length=64,
      draws=_MASK_DRAWS,
    ),
  )
  report = evaluate_lib.evaluate(
    model_dir=settings.model_dir, tasks=tasks, untrained=True
  )
  if report.failures:
    raise errors.CorpusError(
      'The evaluation of the demo failed',
      got='; '.join(map(str, report.failures)),
    )
  return report


def _commands(settings: demo_pipeline.Settings) -> list[str]:
  """Commands to go on with, in this very place."""
  corpus, model_dir = settings.path('corpus'), settings.model_dir
  return [
    'The same numbers, by another layer:',
    f'  xlflax evaluate --model_dir={model_dir} --tasks=retrieval '
    f'--corpus={corpus} --gin.retrieval_task.Retrieval.layer=1',
    'Losses, tokens and settings on a page:',
    f'  xlflax report {model_dir} --output={model_dir}_report',
    'Your own text, corpus/mono/<language>.txt, a sentence a line:',
    '  xlflax pretrain corpus --output=runs/own --hours=1',
  ]

"""The phases of `xlflax demo`, from text to evaluation scores.

Every phase calls the public function behind a separate `xlflax` command, so
that the phase can be repeated and modified with that command.
"""

import contextlib
import logging
import time

import rich.console
import rich.rule

from xlflax import evaluate, trainer
from xlflax.config import gin_config, setting_names
from xlflax.demo import demo_corpus, demo_pipeline, retrieval_examples
from xlflax.evaluation import result_tables, text_sources
from xlflax.evaluation.tasks import perplexity, retrieval_task
from xlflax.utils import errors

_PHASES = ('corpus', 'vocabulary', 'cache', 'training', 'evaluation')
# Masks are drawn several times because the held-out text is short.
_MASK_DRAWS = 8


def run(settings: demo_pipeline.Settings) -> evaluate.Report:
  """Runs all phases of the demo and reuses the results of earlier calls.

  Args:
    settings: Settings of the demo, such as its run directory, languages and gin
      files.

  Returns:
    Retrieval and perplexity results of the untrained and the trained model. The
    run's `eval/report.html` also shows the results.

  Raises:
    XlflaxError: If a package is missing, if the directory contains a different
      run, or if part of the evaluation failed.
  """
  phases = _Phases()
  # Missing packages and misspelled bindings are detected before any file is
  # written.
  demo_corpus.check_packages()
  configuration = demo_pipeline.configured(settings)
  configuration.expect_build(trainer.Trainer)
  gin_config.check_bindings([configuration])
  with phases.begin('corpus', "Django's messages and pycountry's names"):
    split = demo_corpus.build_corpus(
      settings.path('corpus'),
      languages=settings.languages,
      num_test=settings.num_test,
    )
    logging.info(
      'Wrote %d training pairs in %d languages to %s.',
      sum(map(len, split.train.values())),
      len(settings.languages),
      settings.path('corpus'),
    )
  with phases.begin('vocabulary', 'Joint SentencePiece vocabulary'):
    vocabulary = demo_pipeline.make_vocabulary(settings)
  with phases.begin('cache', 'Tokenization of the corpus'):
    demo_pipeline.write_cache(settings, vocabulary)
  with phases.begin('training', 'MLM, TLM and sentence alignment'):
    demo_trainer = configuration.build(trainer.Trainer)
    with setting_names.naming_settings(configuration.find_dataset_binding):
      demo_trainer.train(gin_config=configuration.operative)
  with phases.begin(
    'evaluation', 'Untrained and trained model on held-out messages'
  ):
    report = _evaluate(settings)
    examples = retrieval_examples.find(
      settings.model_dir, settings.path('corpus')
    )
  console = rich.console.Console()
  result_tables.print_tables(report.tasks, report.results, console)
  console.print(retrieval_examples.table(examples))
  lines = [
    f'The demo took {phases.seconds:.0f} seconds. All results and plots: '
    f'{settings.model_dir}/eval/report.html',
    *_next_commands(settings),
  ]
  for line in lines:
    console.print(line, soft_wrap=True, highlight=False, markup=False)
  return report


class _Phases:
  """Prints phase headings and records the total time of all phases.

  Attributes:
    seconds: Total time of the finished phases, in seconds.
  """

  def __init__(self):
    self.seconds = 0.0
    self._console = rich.console.Console(stderr=True)

  @contextlib.contextmanager
  def begin(self, name: str, description: str):
    """Context manager that prints a phase's heading and logs its duration."""
    number = _PHASES.index(name) + 1
    heading = f'{number}/{len(_PHASES)}  {name}: {description}'
    self._console.print(rich.rule.Rule(heading, align='left'))
    start = time.monotonic()
    yield
    seconds = time.monotonic() - start
    self.seconds += seconds
    logging.info('Phase %s took %.1f s.', name, seconds)


def _evaluate(settings: demo_pipeline.Settings) -> evaluate.Report:
  """Evaluates the untrained and the trained model on held-out messages."""
  directory = settings.path('corpus')
  tasks = (
    retrieval_task.Retrieval(
      source=text_sources.ParallelCorpus(directory=directory)
    ),
    perplexity.Perplexity(
      source=text_sources.CorpusText(directory=directory),
      length=64,
      num_mask_samples=_MASK_DRAWS,
    ),
  )
  report = evaluate.evaluate(
    model_dir=settings.model_dir, tasks=tasks, untrained=True
  )
  if report.failures:
    raise errors.CorpusError(
      "Some of the demo's evaluation tasks failed",
      got='; '.join(map(str, report.failures)),
    )
  return report


def _next_commands(settings: demo_pipeline.Settings) -> list[str]:
  """Returns commands to run after the demo, with their descriptions."""
  corpus = settings.path('corpus')
  model_dir = settings.model_dir
  return [
    'Evaluate retrieval with the hidden states of a different layer:',
    f'  xlflax evaluate --model_dir={model_dir} --tasks=retrieval '
    f'--corpus={corpus} --gin.retrieval_task.Retrieval.layer=1',
    'Write a report with losses, tokens and settings:',
    f'  xlflax report {model_dir} --output={model_dir}_report',
    'Pretrain on your own text in corpus/mono/<language>.txt, with one '
    'sentence per line:',
    '  xlflax pretrain corpus --output=runs/own --hours=1',
  ]

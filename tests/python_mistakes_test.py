"""Mistakes of people who use xlflax from Python, and what each is told.

Every row of `python_mistakes` is a call as somebody typed it. It raises one XlflaxError that says
what is wrong, what was got or expected, where, and what to do; no TypeError,
AttributeError, KeyError, ValueError or IndexError comes out.
"""

import dataclasses
import importlib
import pathlib

import jax
import numpy as np
import optax
import pytest

import xlflax
from tests import python_mistakes
from xlflax import cli, data, evaluation, models, objectives, suites, training
from xlflax.data.preparation import text_processing
from xlflax.foundation import errors
from xlflax.training.devices import partitioning

pytest_plugins = [
  'tests.evaluation.fixtures',
  'tests.evaluation.translation_fixtures',
]

_MODULES = """
  data data.cache.reader data.cache.writer data.dictionaries.dictionary
  data.labelled.sources.source data.labelled.sources.xtreme data.opening
  data.preparation.preparation analysis.cka_study analysis.dictionaries
  analysis.parallel_text analysis.study evaluate evaluation
  finetuning.finetune finetuning.self_labelling interop.mteb_encoder models
  objectives similarity suites suites.evaluate_suite training
  translate
""".split()


def _stream(layout: str, mixture: str = 'corpus.mono', **fields) -> data.Stream:
  return data.Stream(
    name='text',
    mixture=mixture,
    layout=data.Layout(layout),
    length=16,
    batch_size=8,
    **fields,
  )


def _trainer(objective, stream, **fields) -> xlflax.Trainer:
  entry = objectives.Entry(stream='text', objective=objective)
  return xlflax.Trainer(
    **{
      'model_dir': 'new',
      'model': models.Encoder(_CONFIG),
      'objectives': objectives.ObjectiveMixture(entries=(entry,)),
      'streams': (stream,),
      'vocabulary': 'v',
      'optimizer': training.AdamW(learning_rate=1e-3),
      'total_steps': 3,
    }
    | fields
  )


_CONFIG = models.EncoderConfig(
  num_layers=1, hidden_dim=8, mlp_dim=8, num_heads=2, max_length=16
)
_CLASSES = objectives.SequenceClassification(labels=('a', 'b'))
_LABELLED = data.LabelledStream(
  name='text',
  source=data.FileExamples(format='tsv', files={'en': 'a.tsv'}),
  rows=data.ClassificationRows(labels=('a', 'b')),
  length=16,
  batch_size=8,
)
_NAMESPACE = {
  'dataclasses': dataclasses,
  'jax': jax,
  'np': np,
  'optax': optax,
  'pathlib': pathlib,
  'xlflax': xlflax,
  'ADJACENT': _stream('adjacent'),
  'CLASSES': _CLASSES,
  'ENCODER': models.Encoder(
    dataclasses.replace(_CONFIG, vocab_size=16, num_languages=2)
  ),
  'FILES': _LABELLED.source,
  'KEY': jax.random.key(0),
  'LABELLED': _LABELLED,
  'MIXTURE': objectives.ObjectiveMixture(
    entries=(objectives.Entry(stream='text', objective=objectives.MaskedLM()),)
  ),
  'MLM': objectives.MaskedLM(),
  'MONO': _stream('blocks'),
  'ONE': partitioning.Partitioner(devices=(jax.devices()[0],)),
  'PAIRS': _stream('pairs', 'corpus.parallel'),
  'PROCESSING': text_processing.TextProcessing(),
  'RTD': objectives.ReplacedTokenDetection(generator=_CONFIG),
  'SIDES': _stream('sides', 'corpus.parallel'),
  'SUITE': suites.Suite(
    name='xtreme',
    tasks=(suites.SuiteTask(name='xnli', family='pairs', gin_file='x.gin'),),
  ),
  'TRAINER': _trainer(objectives.MaskedLM(), _stream('blocks')),
  'X': np.random.default_rng(0).normal(size=(6, 4)),
  'trainer': _trainer,
}


def _module(name: str):
  return importlib.import_module(f'xlflax.{name}')


@pytest.fixture(scope='module')
def names(make_run, copying_run, corpus, vocabulary, tmp_path_factory):
  """What the calls name."""
  directory = str(make_run(tmp_path_factory.mktemp('runs') / 'run', [10, 20]))
  one = _NAMESPACE['ONE']
  return (
    {name.rpartition('.')[2]: _module(name) for name in _MODULES}
    | _NAMESPACE
    | {
      'COPIER': str(copying_run),
      'CORPUS': data.Corpus(corpus),
      'DIR': directory,
      'TASK': evaluation.Retrieval(
        source=evaluation.CorpusPairs(directory=corpus)
      ),
      'TMP': tmp_path_factory.mktemp('written'),
      'VOCABULARY': vocabulary,
      'run': xlflax.open_run(directory, partitioner=one),
      'translator': xlflax.open_run(copying_run, partitioner=one),
    }
  )


def test_the_table_is_long_enough():
  assert len(python_mistakes.MISTAKES) >= 180


@pytest.mark.parametrize(
  'call', [*python_mistakes.MISTAKES, *python_mistakes.NAMES]
)
def test_a_mistake_is_told(call, names, tmp_path, monkeypatch):
  _check(
    call,
    (python_mistakes.MISTAKES | python_mistakes.NAMES)[call],
    names,
    tmp_path,
    monkeypatch,
  )


@pytest.mark.parametrize('call', python_mistakes.FIELDS)
def test_a_mistaken_field_is_told(call, names, tmp_path, monkeypatch):
  _check(call, python_mistakes.FIELDS[call], names, tmp_path, monkeypatch)


def _check(call, parts, names, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.XlflaxError) as caught:
    eval(call, names)
  text = str(caught.value)
  for part in parts:
    assert part in text
  assert caught.value.status == errors.ExitStatus.MISTAKE
  assert 'What to do: ' in text or 'Expected: ' in text
  assert caught.value.__cause__ is None or not isinstance(
    caught.value.__cause__, TypeError | AttributeError | IndexError
  )
  assert not list(tmp_path.iterdir())  # nothing is written


@pytest.mark.parametrize('files', ["'a.tsv'", "['a.tsv']", "{'en': 3}"])
def test_train_files_of_another_kind_are_told(names, files, tmp_path, capfd):
  line = [
    'finetune',
    '--gin_file=finetune/classification.gin',
    f'--init_from={names["DIR"]}',
    f'--output={tmp_path / "new"}',
    f'--gin.TRAIN_FILES={files}',
    "--gin.LABELS=('a', 'b')",
    '--dry_run',
  ]
  assert cli.main(line) == errors.ExitStatus.MISTAKE
  told = capfd.readouterr().err
  assert 'Traceback' not in told
  (message,) = [x for x in told.splitlines() if x.startswith('xlflax finetune')]
  for part in (
    'FileExamples.files',
    'Got: ',
    'Expected: ',
    '--gin.TRAIN_FILES',
  ):
    assert part in message


@pytest.mark.parametrize('call', python_mistakes.RIGHT)
def test_what_is_right_passes(call, names):
  eval(call, names)

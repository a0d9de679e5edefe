"""Tests that tasks of a corpus directory equal those of SeqIO."""

import os
import subprocess
import sys

import numpy as np
import pytest

from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.plain_text import corpus_directory_tasks
from xlflax.data.tokenizers import vocabulary_training
from xlflax.utils import errors

_NAMES = (
  'corpus.mono',
  'corpus.parallel',
  'corpus.code_switched',
  'corpus.mono.en',
)


@pytest.fixture
def corpus_readers(registry, toy_corpus):
  """Readers of the same corpus without and with SeqIO."""
  from xlflax.data.seqio_tasks import cache_adapter
  from xlflax.data.seqio_tasks import corpus_tasks as seqio_tasks

  seqio_tasks.register_corpus(toy_corpus)
  return (
    corpus_directory_tasks.CorpusTasks(toy_corpus.directory),
    cache_adapter.RegisteredTasks(),
  )


@pytest.mark.parametrize('split', ['train', 'validation', 'test'])
def test_tasks_equal_those_of_seqio(corpus_readers, toy_vocabulary, split):
  reader, seqio = corpus_readers
  examples = {}
  for mixture in _NAMES:
    try:
      names = seqio.names(mixture, split=split)
    except errors.CorpusError as expected:
      with pytest.raises(errors.CorpusError) as caught:
        reader.names(mixture, split=split)
      assert str(caught.value) == str(expected)
      continue
    assert reader.names(mixture, split=split) == names
    sizes = {(names[0], split): 7}
    rates = reader.rates(mixture, split=split, sizes=sizes)
    assert rates == seqio.rates(mixture, split=split, sizes=sizes)
    assert list(rates) == names
    examples |= dict.fromkeys(names)
  assert examples
  for task in examples:
    for query in ('fingerprint', 'files', 'source_size'):
      answers = [getattr(tasks, query)(task, split) for tasks in corpus_readers]
      assert answers[0] == answers[1], (task, query)
    assert reader.languages(task) == seqio.languages(task)
    for start in (0, 13):
      _assert_equal(
        *(
          list(
            tasks.read(task, toy_vocabulary, split=split, start=start, size=16)
          )
          for tasks in corpus_readers
        )
      )


def _assert_equal(first, second):
  assert [len(batch) for batch in first] == [len(batch) for batch in second]
  for actual, other in zip(first, second, strict=True):
    np.testing.assert_array_equal(actual.starts_document, other.starts_document)
    for side, same in zip(actual.sides, other.sides, strict=True):
      np.testing.assert_array_equal(side.tokens, same.tokens)
      np.testing.assert_array_equal(side.lengths, same.lengths)


def test_code_switched_copies_multiply_the_examples(toy_corpus):
  [task] = [
    task
    for task in corpus_directory_tasks.list_tasks(
      toy_corpus, code_switching=CodeSwitching(num_copies=2)
    )['corpus.code_switched']
    if task.languages == ('en',)
  ]
  assert task.rows.count('train') == 2 * task.source.count('train') == 400
  assert len(list(task.rows.read('train'))) == 400
  assert task.rows.files is None
  assert task.rows.paths('train') == list(toy_corpus.text_files('en'))
  assert (
    task.steps[2][0] == 'code_switch' and task.steps[2][1]['num_copies'] == 2
  )


def test_unknown_names_and_splits_raise_the_errors_of_seqio(corpus_readers):
  for query in (
    lambda tasks: tasks.names('corpus.mon', split='train'),
    lambda tasks: tasks.languages('corpus.mono.fr'),
    lambda tasks: tasks.source_size('corpus.mono.en', 'test'),
  ):
    messages = []
    for tasks in corpus_readers:
      with pytest.raises(errors.CorpusError) as caught:
        query(tasks)
      messages.append(caught.value.what)
    assert messages[0] == messages[1]


_FAILING_MODULE = """
import os
open(os.environ['IMPORT_LOG'], 'a').write(__name__)
raise ImportError(f'{__name__} must not be imported here')
"""


def _cache(corpus: Corpus, vocabulary, folder, *flags):
  """Runs `xlflax cache` where TensorFlow, SeqIO and JAX cannot be imported."""
  failing_modules = folder / 'failing_modules'
  failing_modules.mkdir()
  for name in ('tensorflow', 'seqio', 'jax'):
    (failing_modules / f'{name}.py').write_text(_FAILING_MODULE)
  process = subprocess.run(
    [
      *(sys.executable, '-m', 'xlflax.cli', 'cache', '--num_workers=2'),
      *(f'--corpus={corpus.directory}', f'--vocabulary={vocabulary}'),
      *(f'--output={folder / "cache"}', '--shard_size=4096', *flags),
    ],
    env=os.environ
    | {
      'PYTHONPATH': str(failing_modules),
      'IMPORT_LOG': str(folder / 'was_imported'),
    },
    capture_output=True,
    text=True,
    check=False,
  )
  return process.returncode, process.stderr


def test_corpus_is_cached_without_tensorflow(
  toy_corpus, toy_vocabulary, tmp_path
):
  """Neither the command nor its worker processes import TensorFlow."""
  vocabulary = tmp_path / 'vocabulary'
  vocabulary_training.write_vocabulary(
    toy_vocabulary, toy_vocabulary.describe(), vocabulary
  )
  for number, flags in enumerate(([], ['--task_module=none'])):
    folder = tmp_path / str(number)
    folder.mkdir()
    status, output = _cache(toy_corpus, vocabulary, folder, *flags)
    was_imported = (folder / 'was_imported').exists()
    if flags:  # task modules import SeqIO
      assert was_imported and status, output
    else:
      assert not was_imported and not status, output

"""Tests of commands on runs that are not writable."""

import dataclasses
import json

import jax
import pytest

import xlflax
from tests import read_only
from tests.errors import assert_mentions, raises_error
from tests.interop.huggingface import handmade
from xlflax import cli
from xlflax import evaluate as evaluate_lib
from xlflax.evaluation import text_sources
from xlflax.evaluation.tasks import retrieval_task
from xlflax.interop.huggingface import huggingface_import
from xlflax.utils import errors


@pytest.fixture(scope='module')
def workspace(tmp_path_factory):
  """Two runs, a corpus and text files."""
  root = tmp_path_factory.mktemp('read_only')
  (root / 'hf').mkdir()
  checked = huggingface_import.check_import(
    handmade.write_folder(root / 'hf'), languages=['en', 'de']
  )
  for name in ('run', 'other'):
    huggingface_import.convert_import(checked, root / name)
  (root / 'corpus' / 'test' / 'parallel').mkdir(parents=True)
  text = 'a b\ta\nb\tb a\na a\tb b\n'
  (root / 'corpus' / 'test' / 'parallel' / 'de-en.tsv').write_text(text)
  (root / 'corpus' / 'parallel').mkdir()
  (root / 'corpus' / 'parallel' / 'de-en.tsv').write_text(text)
  (root / 'files.tsv').write_text('a b\ta\nb\tb a\na a\tb b\n')
  return root


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
  monkeypatch.setattr(jax, 'device_count', lambda: 1)
  monkeypatch.setattr('xlflax.utils.logs.set_up_logging', lambda *_, **__: None)


def _tasks(workspace):
  source = text_sources.ParallelFiles(
    files={'de-en': str(workspace / 'files.tsv')}
  )
  return [retrieval_task.Retrieval(source=source)]


def test_evaluate_requires_an_output_for_a_read_only_run(workspace):
  with read_only.only_read(workspace / 'run'):
    run = xlflax.load_run(workspace / 'run')
    with pytest.raises(errors.RunDirectoryError) as caught:
      evaluate_lib.evaluate(
        model_dir=str(workspace / 'run'), tasks=_tasks(workspace)
      )
    with raises_error(
      errors.RunDirectoryError, where='run', mentions='--output=DIR'
    ):
      run.evaluate(_tasks(workspace))
  assert_mentions(caught.value, '--output=DIR')
  assert caught.value.status is errors.ExitStatus.MISTAKE


@pytest.mark.slow
def test_evaluate_writes_to_another_output(workspace, tmp_path):
  out = tmp_path / 'out'

  with read_only.only_read(workspace / 'run'):
    first, again = (
      evaluate_lib.evaluate(
        model_dir=str(workspace / 'run'),
        tasks=_tasks(workspace),
        output=str(out),
        untrained=True,
      )
      for _ in range(2)
    )
    returned_results = xlflax.load_run(workspace / 'run').evaluate(
      _tasks(workspace), output=out
    )
  assert (first.computed, again.computed) == (2, 0)  # resumed
  result = first.results['retrieval'][0]
  assert returned_results['retrieval'] == dataclasses.replace(result, files={})
  (folder,) = (out / 'eval' / 'retrieval').iterdir()
  assert first.folders == {'retrieval': folder}
  assert {p.name for p in folder.glob('*.json')} == {'0.json', 'untrained.json'}
  assert {p.name for p in (out / 'eval').iterdir()} >= {
    'report.html',
    'summary.csv',
    'run.json',
  }


def test_output_of_another_run_is_rejected(workspace, tmp_path):
  out = tmp_path / 'out'

  def evaluate(run):
    return evaluate_lib.evaluate(
      model_dir=str(run), tasks=_tasks(workspace), output=str(out)
    )

  evaluate(workspace / 'run')
  with raises_error(errors.RunDirectoryError, where='out'):
    evaluate(workspace / 'other')
  with raises_error(errors.RunDirectoryError, where='other'):
    evaluate_lib.evaluate(
      model_dir=str(workspace / 'run'),
      tasks=_tasks(workspace),
      output=str(workspace / 'other'),
    )
  (tmp_path / 'link').symlink_to(workspace / 'run')  # mounted elsewhere
  assert evaluate(tmp_path / 'link').computed == 0
  record = out / 'eval' / 'run.json'
  record.write_text(json.dumps({'run': 5}))
  with raises_error(
    errors.RunDirectoryError, where='run.json', mentions='ValueError'
  ):
    evaluate(workspace / 'run')


def test_run_directory_can_be_the_output(workspace, tmp_path):
  report = evaluate_lib.evaluate(
    model_dir=str(workspace / 'other'),
    tasks=_tasks(workspace),
    output=str(workspace / 'other'),
  )
  assert report.folders['retrieval'].is_relative_to(
    workspace / 'other' / 'eval'
  )
  assert not (workspace / 'other' / 'eval' / 'run.json').exists()


def _main(*arguments):
  return cli.main([*map(str, arguments)])


def test_commands_do_not_write_to_a_read_only_run(workspace, tmp_path, capsys):
  """Runs the commands without write permission for the run and the text."""
  run, out = workspace / 'run', tmp_path / 'out'
  evaluate = ('evaluate', f'--model_dir={run}', '--tasks=retrieval')
  evaluate += (f'--corpus={workspace / "corpus"}', '--compilation_cache=')
  pairs = f'--text=de-en={workspace / "files.tsv"}'
  analyze = (f'--model_dir={run}', '--compilation_cache=')
  with read_only.only_read(run, workspace / 'corpus'):
    assert _main(*evaluate) == 2
    assert_mentions(capsys.readouterr().err, '--output=DIR')
    assert _main(*evaluate, f'--output={out}/eval_out') == 0
    assert _main('report', run, f'--output={out}/report') == 0
    assert _main('report', f'{out}/eval_out', f'--output={out}/report2') == 0
    assert _main('analyze', 'cka', *analyze, pairs, f'--output={out}/cka') == 0
    output_flags = (
      f'--activation_cache={out}/states',
      f'--output={out}/sentences',
    )
    output_flags += (pairs.replace('text', 'test'),)
    assert _main('analyze', 'sentence-retrieval', *analyze, *output_flags) == 0
    to_hf = ('convert', 'to-hf', run, f'--output={out}/hf')
    assert _main(*to_hf) == 0
    assert _main('verify', run) == 0
  assert (out / 'eval_out' / 'eval' / 'report.html').exists()
  text = (out / 'report2' / 'report.html').read_text()
  assert 'retrieval' in text

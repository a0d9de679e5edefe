"""Commands on runs that cannot be written: somebody else's, a read-only disk."""

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
def place(tmp_path_factory):
  """Two models and text."""
  root = tmp_path_factory.mktemp('read_only')
  (root / 'hf').mkdir()
  checked = huggingface_import.check_import(
    handmade.write(root / 'hf'), languages=['en', 'de']
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


def _tasks(place):
  source = text_sources.ParallelFiles(files={'de-en': str(place / 'files.tsv')})
  return [retrieval_task.Retrieval(source=source)]


def test_evaluate_asks_for_another_place(place):
  with read_only.only_read(place / 'run'):
    run = xlflax.load_run(place / 'run')
    with pytest.raises(errors.RunDirectoryError) as caught:
      evaluate_lib.evaluate(model_dir=str(place / 'run'), tasks=_tasks(place))
    with raises_error(
      errors.RunDirectoryError, where='run', mentions='--output=DIR'
    ):
      run.evaluate(_tasks(place))
  assert_mentions(caught.value, '--output=DIR')
  assert caught.value.status is errors.ExitStatus.MISTAKE


def test_evaluate_into_another_place(place, tmp_path):
  out = tmp_path / 'out'

  with read_only.only_read(place / 'run'):
    first, again = (
      evaluate_lib.evaluate(
        model_dir=str(place / 'run'),
        tasks=_tasks(place),
        output=str(out),
        untrained=True,
      )
      for _ in range(2)
    )
    found = xlflax.load_run(place / 'run').evaluate(_tasks(place), output=out)
  assert (first.computed, again.computed) == (2, 0)  # resumed
  written = first.results['retrieval'][0]  # whose files are on disk now
  assert found['retrieval'] == dataclasses.replace(written, files={})
  (folder,) = (out / 'eval' / 'retrieval').iterdir()
  assert first.folders == {'retrieval': folder}
  assert {p.name for p in folder.glob('*.json')} == {'0.json', 'untrained.json'}
  assert {p.name for p in (out / 'eval').iterdir()} >= {
    'report.html',
    'summary.csv',
    'run.json',
  }


def test_a_place_has_the_results_of_one_run(place, tmp_path):
  out = tmp_path / 'out'

  def evaluate(run):
    return evaluate_lib.evaluate(
      model_dir=str(run), tasks=_tasks(place), output=str(out)
    )

  evaluate(place / 'run')
  with raises_error(errors.RunDirectoryError, where='out'):
    evaluate(place / 'other')
  with raises_error(errors.RunDirectoryError, where='other'):
    evaluate_lib.evaluate(
      model_dir=str(place / 'run'),
      tasks=_tasks(place),
      output=str(place / 'other'),
    )
  (tmp_path / 'link').symlink_to(place / 'run')  # mounted elsewhere
  assert evaluate(tmp_path / 'link').computed == 0
  record = out / 'eval' / 'run.json'
  record.write_text(json.dumps({'run': 5}))
  with raises_error(
    errors.RunDirectoryError, where='run.json', mentions='ValueError'
  ):
    evaluate(place / 'run')


def test_its_own_directory_as_the_place(place, tmp_path):
  report = evaluate_lib.evaluate(
    model_dir=str(place / 'other'),
    tasks=_tasks(place),
    output=str(place / 'other'),
  )
  assert report.folders['retrieval'].is_relative_to(place / 'other' / 'eval')
  assert not (place / 'other' / 'eval' / 'run.json').exists()


def _main(*words):
  return cli.main([*map(str, words)])


def test_commands(place, tmp_path, capsys):
  """Each as a user who may only read the run and the text."""
  run, out = place / 'run', tmp_path / 'out'
  evaluate = ('evaluate', f'--model_dir={run}', '--tasks=retrieval')
  evaluate += (f'--corpus={place / "corpus"}', '--compilation_cache=')
  pairs = f'--text=de-en={place / "files.tsv"}'
  analyze = (f'--model_dir={run}', '--compilation_cache=')
  with read_only.only_read(run, place / 'corpus'):
    assert _main(*evaluate) == 2
    assert_mentions(capsys.readouterr().err, '--output=DIR')
    assert _main(*evaluate, f'--output={out}/eval_out') == 0
    assert _main('report', run, f'--output={out}/report') == 0
    assert _main('report', f'{out}/eval_out', f'--output={out}/report2') == 0
    assert _main('analyze', 'cka', *analyze, pairs, f'--output={out}/cka') == 0
    kept = (f'--activation_cache={out}/states', f'--output={out}/sentences')
    kept += (pairs.replace('text', 'test'),)
    assert _main('analyze', 'sentence-retrieval', *analyze, *kept) == 0
    to_hf = ('convert', 'to-hf', run, f'--output={out}/hf')
    assert _main(*to_hf) == 0
    assert _main('verify', run) == 0
  assert (out / 'eval_out' / 'eval' / 'report.html').exists()
  text = (out / 'report2' / 'report.html').read_text()
  assert 'retrieval' in text

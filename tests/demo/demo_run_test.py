import csv
import io
import pathlib

import pytest
import rich.console

from xlflax import cli
from xlflax.demo import demo_pipeline, demo_run, retrieval_examples
from xlflax.utils import errors

pytestmark = pytest.mark.slow

pytest.importorskip('seqio')
pytest.importorskip('django')
pytest.importorskip('pycountry')

_OTHERS = {'de', 'ja'}
_FLAGS = [
  '--steps=2',
  '--languages=en,de,ja',
  '--gin.SIDE_BATCH_SIZE=8',
  '--gin.BATCH_SIZE=8',
  '--gin.PAIR_BATCH_SIZE=8',
  '--gin.model_config.EncoderConfig.num_layers=1',
]


@pytest.fixture(scope='module')
def model_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp('demo') / 'run'
  assert cli.main(['demo', f'--model_dir={directory}', *_FLAGS]) == 0
  return directory


def _scores(model_dir):
  """Returns a mapping from (task, step, metric) to values of `eval/summary.csv`."""
  with open(model_dir / 'eval' / 'summary.csv', encoding='utf-8') as file:
    return {
      (row['task'], row['step'], row['metric']): float(row['value'])
      for row in csv.DictReader(file)
    }


def test_all_languages_have_scores_at_both_steps(model_dir):
  scores = _scores(model_dir)
  for step in ('untrained', '2'):
    for code in _OTHERS:
      assert f'{scores["retrieval", step, f"accuracy/{code}"]:.3f}'
    for code in _OTHERS | {'en'}:
      assert scores['perplexity', step, f'perplexity/{code}'] > 1
  page = (model_dir / 'eval' / 'report.html').read_text('utf-8')
  assert page.count('data:image/png') >= 3


def test_retrieval_examples_use_one_held_out_message_per_language(model_dir):
  data = demo_pipeline.Settings(model_dir=str(model_dir)).data_dir
  examples = retrieval_examples.find(model_dir, data / 'corpus')
  assert [example['language'] for example in examples] == ['de', 'ja']
  lines = (data / 'corpus/test/parallel/en-de.tsv').read_text('utf-8')
  example = examples[0]
  assert lines.splitlines()[0] == f'{example["answer"]}\t{example["query"]}'


def test_brackets_in_messages_are_not_interpreted_as_markup():
  example = {'query': '[b]x', 'found': 'y', 'answer': 'z', 'language': 'de'}
  console = rich.console.Console(width=80, record=True, file=io.StringIO())
  console.print(retrieval_examples.table([example]))
  console_text = console.export_text()
  assert '[b]x' in console_text and 'wrong' in console_text


def test_repeating_a_finished_demo_gives_the_same_scores(model_dir, capsys):
  before = _scores(model_dir)
  assert cli.main(['demo', f'--model_dir={model_dir}', *_FLAGS]) == 0
  assert _scores(model_dir) == before
  printed = capsys.readouterr().out
  assert 'Retrieval examples' in printed and 'perplexity' in printed
  assert str(model_dir / 'eval' / 'report.html') in printed
  commands = [
    line.split()[1:]
    for line in printed.splitlines()
    if line.startswith(('  xlflax evaluate', '  xlflax report'))
  ]
  assert [cli.main(command) for command in commands] == [0, 0]
  assert pathlib.Path(f'{model_dir}_report', 'report.html').exists()


def test_different_configuration_is_rejected(model_dir, capsys):
  assert (
    cli.main(
      ['demo', f'--model_dir={model_dir}', *_FLAGS, '--gin.TEMPERATURE=0.2']
    )
    == 2
  )
  assert 'with a different configuration' in capsys.readouterr().err


def test_misspelled_binding_is_rejected_before_writing_files(tmp_path, capsys):
  directory = tmp_path / 'run'
  assert (
    cli.main(['demo', f'--model_dir={directory}', '--gin.TEMPERATUR=1.0']) == 2
  )
  assert 'TEMPERATUR' in capsys.readouterr().err
  assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_reported_immediately(tmp_path, monkeypatch):
  original_find_spec = demo_run.demo_corpus.importlib.util.find_spec
  monkeypatch.setattr(
    demo_run.demo_corpus.importlib.util,
    'find_spec',
    lambda name: None if name == 'pycountry' else original_find_spec(name),
  )
  with pytest.raises(errors.CorpusError) as caught:
    demo_run.run(demo_pipeline.Settings(model_dir=str(tmp_path / 'run')))
  assert 'Got: pycountry' in str(caught.value)
  assert list(tmp_path.iterdir()) == []

import json

import pytest

from xlflax import cli
from xlflax.demo import demo, pipeline
from xlflax.foundation import errors

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


def test_the_summary_has_every_language_and_both_models(model_dir):
  made = json.loads((model_dir / 'report' / 'summary.json').read_text('utf-8'))
  assert made['languages'] == ['en', 'de', 'ja']
  for model in ('untrained', 'trained'):
    assert set(made['retrieval'][model]) == _OTHERS
    assert set(made['perplexity'][model]) == _OTHERS | {'en'}
    scores = made['retrieval'][model]
    assert made['retrieval']['mean'][model] == pytest.approx(
      sum(scores.values()) / 2
    )
    for code, by_layer in made['layers'][model].items():
      assert len(by_layer) == 2
      assert by_layer[-1] == pytest.approx(scores[code])
  assert made['retrieval']['untrained'] != made['retrieval']['trained']
  assert made['settings']['steps'] == 2
  assert made['settings']['layers'] == 1
  assert set(made['seconds']) >= {'corpus', 'training', 'evaluation'}
  assert {'jax', 'Django', 'python'} <= set(made['versions'])


def test_examples_are_one_held_out_message_of_each_language(model_dir):
  made = json.loads((model_dir / 'report' / 'summary.json').read_text('utf-8'))
  assert [example['language'] for example in made['examples']] == ['de', 'ja']
  data = pipeline.Settings(model_dir=str(model_dir)).data_dir
  lines = (data / 'corpus/test/parallel/en-de.tsv').read_text('utf-8')
  example = made['examples'][0]
  assert lines.splitlines()[0] == f'{example["answer"]}\t{example["query"]}'


def test_the_page_and_its_pictures_are_there(model_dir):
  assert {path.name for path in (model_dir / 'report').iterdir()} == {
    'index.html',
    'summary.json',
    'losses.png',
    'retrieval.png',
    'layers.png',
  }


def test_the_run_can_be_evaluated_by_the_command(model_dir, capsys):
  made = json.loads((model_dir / 'report' / 'summary.json').read_text('utf-8'))
  command = made['commands'][1].split()
  assert command[:2] == ['xlflax', 'evaluate']
  assert cli.main(command[1:]) == 0
  assert 'retrieval' in capsys.readouterr().out


def test_a_finished_demo_run_again_gives_the_same_numbers(model_dir):
  path = model_dir / 'report' / 'summary.json'
  before = json.loads(path.read_text('utf-8'))
  assert cli.main(['demo', f'--model_dir={model_dir}', *_FLAGS]) == 0
  after = json.loads(path.read_text('utf-8'))
  for key in ('retrieval', 'perplexity', 'layers', 'examples'):
    assert after[key] == before[key]


def test_another_configuration_is_refused(model_dir, capsys):
  assert (
    cli.main(
      ['demo', f'--model_dir={model_dir}', *_FLAGS, '--gin.TEMPERATURE=0.2']
    )
    == 2
  )
  assert "another configuration's run" in capsys.readouterr().err


def test_a_misspelt_binding_is_found_before_anything_is_written(
  tmp_path, capsys
):
  directory = tmp_path / 'run'
  assert (
    cli.main(['demo', f'--model_dir={directory}', '--gin.TEMPERATUR=1.0']) == 2
  )
  assert 'TEMPERATUR' in capsys.readouterr().err
  assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_told_at_once(tmp_path, monkeypatch):
  found = demo.catalogs.importlib.util.find_spec
  monkeypatch.setattr(
    demo.catalogs.importlib.util,
    'find_spec',
    lambda name: None if name == 'pycountry' else found(name),
  )
  with pytest.raises(errors.CorpusError) as caught:
    demo.run(pipeline.Settings(model_dir=str(tmp_path / 'run')))
  assert 'Got: pycountry' in str(caught.value)
  assert list(tmp_path.iterdir()) == []

"""Tests of the low-resource suite on small synthetic data."""

import json

import numpy as np
import pytest

from tests.suites import low_resource_data
from xlflax import cli

pytest_plugins = ['tests.finetuning.fixtures']

_TASKS = {
  'sib200',
  'taxi1500',
  'belebele',
  'udpos',
  'wikiann',
  'flores',
  'tatoeba',
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_tasks_have_head_and_tail_averages(tmp_path, make_run, capsys):
  data = low_resource_data.write_data(tmp_path)
  run = make_run(tmp_path / 'mlm', [10])
  output = tmp_path / 'out'
  arguments = [
    'evaluate',
    '--suite=low_resource',
    f'--data={data}',
    f'--model_dir={run}',
    f'--output={output}',
    '--gin.EPOCHS=1',
    '--gin.BATCH_SIZE=8',
    '--gin.LENGTH=16',
  ]
  assert cli.main(arguments) == 0
  printed = capsys.readouterr().out
  assert 'mlm@10: head' in printed
  (model,) = json.loads((output / 'suite.json').read_text())['models']
  assert set(model['tasks']) == _TASKS
  means = model['head_tail']
  for name, task in model['tasks'].items():
    assert not task['failures']
    (metric,) = task['metrics']
    points = {
      part.partition('/')[2]: 100 * value['mean']
      for part, value in task['scores'].items()
      if part.startswith(f'{metric}/') and not part.endswith('/mean')
    }
    head = [score for code, score in points.items() if code in ('en', 'sw')]
    assert set(points) - {'en'} == {'sw', 'kab'}
    assert ('en' in points) == (name not in ('flores', 'tatoeba'))
    assert means[name]['head'] == pytest.approx(np.mean(head))
    assert means[name]['tail'] == pytest.approx(points['kab'])
    assert means[name]['all'] == pytest.approx(np.mean([*points.values()]))
  for group in ('head', 'tail', 'all'):
    assert means['mean'][group] == pytest.approx(
      np.mean([means[name][group] for name in _TASKS])
    )


def test_data_is_converted_to_the_files_of_the_tasks(tmp_path):
  data = low_resource_data.write_data(tmp_path)
  assert (data / 'taxi1500/swh/dev.tsv').read_text().splitlines() == [
    'a b ,\tsports',
    'c d ,\ttravel',
    'e f ,\thealth',
  ]
  assert sorted(path.name for path in (data / 'flores').iterdir()) == [
    'flores.kab_Latn-eng_Latn.eng_Latn',
    'flores.kab_Latn-eng_Latn.kab_Latn',
    'flores.swh_Latn-eng_Latn.eng_Latn',
    'flores.swh_Latn-eng_Latn.swh_Latn',
  ]
  path = data / 'flores/flores.swh_Latn-eng_Latn.swh_Latn'
  assert path.read_text().splitlines() == ['a b 0', 'a b 1', 'a b 2']

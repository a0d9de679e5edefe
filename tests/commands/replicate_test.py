"""`xlflax replicate` without runs: the page of what is there."""

import pytest

from xlflax import cli
from xlflax.replication import catalogue, experiments, results


@pytest.fixture
def output(tmp_path):
  """Made-up results of the conditions of one claim, which it meets."""
  claim, *_ = catalogue.MADE_UP.chosen(('veco.pairs',))
  found = [
    results.Result(
      condition=name,
      seed=seed,
      settings='',
      measures={'transfer': base + 0.01 * seed**2, 'retrieval': 0.1},
      cpu_seconds=1.0,
    )
    for name, base in ((claim.first, 0.5), (claim.second, 0.9))
    for seed in range(3)
  ]
  results.collect(found, tmp_path / catalogue.MADE_UP.results)
  return tmp_path


def test_page_only(output, capsys):
  assert cli.main(['replicate', '--page_only', f'--output={output}']) == 0
  printed = capsys.readouterr().out
  assert 'veco.pairs: in this order; no twin was run' in printed
  assert 'veco.monolingual: not run' in printed
  text = (output / 'index.md').read_text()
  assert '| in this order; no twin was run |' in text


def test_no_budget_no_run(tmp_path, capsys):
  flags = ['--claim=VECO', '--budget=0', f'--work={tmp_path}']
  assert cli.main(['replicate', *flags, '--compilation_cache=']) == 0
  assert 'veco.pairs: not run' in capsys.readouterr().out
  assert (tmp_path / 'page' / 'index.md').exists()


def test_unknown_claim(tmp_path, capsys):
  assert cli.main(['replicate', '--claim=x.y', f'--work={tmp_path}']) == 2
  assert 'There is no such claim' in capsys.readouterr().err


def test_no_seeds(tmp_path, capsys):
  flags = ['--claim=ECS', '--seeds=0', f'--work={tmp_path}']
  assert cli.main(['replicate', *flags, '--compilation_cache=']) == 2
  assert '--seeds' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('flags', 'runs'), [([], {0, 9}), (['--seeds=2'], {0, 1})]
)
def test_seeds_of_the_page_or_as_many_as_asked(
  tmp_path, monkeypatch, flags, runs
):
  plans = []
  monkeypatch.setattr(
    experiments, 'run', lambda plan, *_, **__: plans.append(plan) or []
  )
  flags = ['--claim=ecs.no_anchors', f'--work={tmp_path}', *flags]
  assert cli.main(['replicate', *flags, '--compilation_cache=']) == 0
  (plan,) = plans
  seeds = {*plan.seeds, *(seed for _, seed in plan.more)}
  assert {min(seeds), max(seeds)} == runs


@pytest.mark.parametrize('flag', ['corpora', 'dictionaries'])
def test_real_languages_need_both_folders(tmp_path, capsys, flag):
  flags = ['--all', f'--{flag}={tmp_path}', '--compilation_cache=']
  assert cli.main(['replicate', *flags]) == 2
  assert '--treebanks=DIR' in capsys.readouterr().err


def test_both_pages_of_results(output, capsys):
  (output / catalogue.REAL.results).write_text('[]')
  assert cli.main(['replicate', '--page_only', f'--output={output}']) == 0
  printed = capsys.readouterr().out
  assert 'metaxlm.focus: not run' in printed
  assert 'Claims in real languages' in (output / 'real.md').read_text()
  assert (output / 'index.md').exists()


def test_results_of_other_claims_stay(output, capsys):
  flags = ['--claim=ecs.maps', '--budget=0', f'--output={output}']
  work = output / 'work'
  assert cli.main(['replicate', *flags, f'--work={work}']) == 0
  printed = capsys.readouterr().out
  assert 'veco.pairs: in this order' in printed
  assert 'ecs.maps: not run' in printed
  assert 'ecs.no_anchors' not in printed


def test_results_of_other_text_are_not_mixed_with_new_ones(
  output, monkeypatch, capsys
):
  """Of fewer seeds, at other settings, where the page has more of old ones."""
  claim, *_ = catalogue.MADE_UP.chosen(('veco.pairs',))
  new = [
    results.Result(
      condition=name,
      seed=seed,
      settings='of other text',
      measures={'transfer': 0.5, 'retrieval': 0.1},
      cpu_seconds=1.0,
    )
    for name in (claim.first, claim.second)
    for seed in range(2)
  ]
  monkeypatch.setattr(experiments, 'run', lambda *_, **__: new)
  flags = ['--claim=veco.pairs', f'--output={output}', '--compilation_cache=']
  assert cli.main(['replicate', *flags, f'--work={output / "work"}']) == 0
  kept = results.read_all(output / catalogue.MADE_UP.results)
  assert {(one.seed, one.settings) for one in kept} == {
    (0, 'of other text'),
    (1, 'of other text'),
  }
  assert 'loses 6 results' in capsys.readouterr().err

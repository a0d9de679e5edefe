"""Tests of the replication study: pages, verdict rule and command."""

import pathlib

import pytest

from studies.replication import __main__ as command
from studies.replication import claims, registry, results
from studies.replication.claims import Order, Verdict
from studies.replication.page import page
from xlflax.evaluation import plots
from xlflax.evaluation.metrics.bootstrap import Significance

_PUBLISHED = pathlib.Path(__file__).parents[2] / 'docs/replication'


@pytest.mark.parametrize(
  'study', registry.STUDIES, ids=lambda study: study.name
)
def test_published_page_follows_from_recorded_results(
  tmp_path, monkeypatch, study
):
  monkeypatch.setattr(plots, 'save_figure', lambda *_, **__: None)
  recorded = results.read_results(_PUBLISHED / study.results)
  page.write_page(tmp_path, recorded, study=study)
  name = f'{study.name}.md'
  assert (tmp_path / name).read_text() == (_PUBLISHED / name).read_text()


@pytest.mark.parametrize(
  'study', registry.STUDIES, ids=lambda study: study.name
)
def test_claims_compare_known_conditions(study):
  names = [condition.name for condition in study.conditions]
  assert len(set(names)) == len(names)
  for claim in study.claims:
    assert {claim.first, claim.second} <= set(names)
  for condition in study.conditions:
    if condition.begins_from:
      start = study.conditions_by_name[condition.begins_from]
      assert start.saved
      assert names.index(start.name) < names.index(condition.name)


@pytest.mark.parametrize(
  ('order', 'low', 'high', 'verdict'),
  [
    (Order.BELOW, 0.01, 0.2, Verdict.REPRODUCED),
    (Order.BELOW, -0.01, 0.2, Verdict.NOT_RESOLVED),
    (Order.BELOW, -0.2, -0.01, Verdict.CONTRADICTED),
    (Order.SAME, -0.04, 0.04, Verdict.REPRODUCED),
    (Order.SAME, 0.06, 0.08, Verdict.CONTRADICTED),
    (Order.NOT_ABOVE, -0.04, 0.2, Verdict.REPRODUCED),
    (Order.NOT_ABOVE, -0.2, -0.06, Verdict.CONTRADICTED),
  ],
)
def test_verdict_follows_from_the_interval(order, low, high, verdict):
  interval = Significance(
    first=0.0,
    second=0.0,
    difference=(low + high) / 2,
    low=low,
    high=high,
    p_value=0.5,
    samples=0,
  )
  assert claims.judge_interval(interval, order, margin=0.05) is verdict


def test_command_without_budget_writes_a_page(tmp_path, capsys):
  arguments = ['--claim=VECO', '--budget=0', f'--work={tmp_path}']
  assert command.main([*arguments, '--compilation_cache=']) == 0
  assert 'veco.pairs: not run' in capsys.readouterr().out
  assert (tmp_path / 'page' / 'index.md').exists()


def test_unknown_claim_is_a_usage_error(tmp_path):
  assert command.main(['--claim=x.y', f'--work={tmp_path}']) == 2

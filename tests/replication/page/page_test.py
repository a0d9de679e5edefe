"""The page says what the results say, and nothing is typed."""

import dataclasses
import json
import math
import pathlib
import re

import numpy as np
import pytest

from xlflax.evaluation.reports import pictures
from xlflax.replication import catalogue, experiments, real_worlds
from xlflax.replication import results as results_lib
from xlflax.replication.claims import Verdict
from xlflax.replication.page import page
from xlflax.replication.worlds import Amounts

PUBLISHED = pathlib.Path(__file__).parents[3] / 'docs/replication'
NAMES = ('metaxlm/shuffled_dict', 'metaxlm/both', 'metaxlm/dict')


def results(difference: float, twin: float = 0.0) -> list[results_lib.Result]:
  """Runs of three conditions, three seeds each."""
  return [
    results_lib.Result(
      condition=name,
      seed=seed,
      settings='',
      measures={
        'transfer': 0.5 + 0.01 * seed + shift * (1 + 0.1 * seed),
        'retrieval': 0.1,
        'offset': 0.25,
      },
      cpu_seconds=60.0,
    )
    for name, shift in zip(NAMES, (twin, 0.0, difference), strict=True)
    for seed in range(3)
  ]


@pytest.mark.parametrize(
  ('difference', 'twin', 'verdict'),
  [
    (0.2, 0.0, Verdict.REPRODUCED),
    (0.2, 0.2, Verdict.AS_ITS_TWIN),
    (-0.2, 0.0, Verdict.CONTRADICTED),
  ],
)
def test_rows(tmp_path, difference, twin, verdict):
  findings = page.write(
    tmp_path, results(difference, twin), catalogue.MADE_UP.chosen(('MetaXLM',))
  )
  judged = page.judged(findings)
  assert judged['metaxlm.dict'] is verdict
  assert judged['metaxlm.both'] is Verdict.NOT_RUN
  assert 'metaxlm.shuffled' not in judged
  text = (tmp_path / 'index.md').read_text()
  row = next(line for line in text.splitlines() if '+Dict is above' in line)
  assert f'| {verdict.value} |' in row
  assert f'| 0.510; {0.51 + difference * 1.1:.3f} |' in row
  assert f'wrong translations: {(difference - twin) * 1.1:+.3f} [' in row
  assert f'1 {verdict.value}' in text
  assert '| `metaxlm.shuffled`, twin of `metaxlm.dict` | ' in text
  assert '**9.0 processor minutes** for the 9 runs' in text
  assert 'ecs.' not in text.split('## What was tried')[0]
  assert '](metaxlm.png)' in text
  assert (tmp_path / 'metaxlm.png').stat().st_size > 1000


def test_the_page_is_made_anew_from_its_results(tmp_path):
  page.write(tmp_path / 'a', results(0.2))
  again = results_lib.read_all(tmp_path / 'a' / catalogue.MADE_UP.results)
  page.write(tmp_path / 'b', again)
  for name in ('index.md', catalogue.MADE_UP.results):
    assert (tmp_path / 'a' / name).read_text() == (
      tmp_path / 'b' / name
    ).read_text()


def test_the_order_and_the_digits_of_runs_do_not_count(tmp_path):
  found, claims = results(0.2), catalogue.MADE_UP.chosen(('metaxlm.dict',))
  page.write(tmp_path / 'a', found, claims)
  shuffled = [
    dataclasses.replace(
      one,
      measures={
        name: value + 1e-7 for name, value in reversed(one.measures.items())
      },
    )
    for one in sorted(found, key=lambda one: (one.seed, one.condition))
  ]
  page.write(tmp_path / 'b', shuffled[::-1], claims)
  for name in ('index.md', 'metaxlm.png'):
    assert (tmp_path / 'a' / name).read_bytes() == (
      tmp_path / 'b' / name
    ).read_bytes()


@pytest.mark.parametrize('study', catalogue.STUDIES, ids=lambda one: one.name)
def test_the_published_page_is_that_of_its_results(
  tmp_path, monkeypatch, study
):
  monkeypatch.setattr(pictures, 'save', lambda *_, **__: None)
  found = results_lib.read_all(PUBLISHED / study.results)
  page.write(tmp_path, found, study=study)
  name = f'{study.name}.md'
  assert (tmp_path / name).read_text() == (PUBLISHED / name).read_text(), (
    'run `xlflax replicate --page_only --output=docs/replication`'
  )


# The settings hang on what the files of real languages hold; their digest.
TEXTS = real_worlds.Texts(
  corpora=pathlib.Path(),
  treebanks=pathlib.Path(),
  digest='0a7d7fc3aed8c2ecd9632ce1ed707fb7',
  words='5f3af819008c45a9ca7e2731205b836d',
)


@pytest.mark.parametrize(
  ('study', 'amounts'),
  [(catalogue.MADE_UP, Amounts()), (catalogue.REAL, TEXTS)],
  ids=['made_up', 'real'],
)
def test_the_published_results_are_of_the_settings_that_would_be_run(
  study, amounts
):
  plan = experiments.Plan(
    conditions=study.conditions, seeds=(), amounts=amounts, size=study.size
  )
  settings = {}
  for one in plan.conditions:
    chain = plan.chain(one)
    settings[one.name] = results_lib.settings_of(
      chain, plan.amounts.read_by(chain), plan.size
    )
  for one in results_lib.read_all(PUBLISHED / study.results):
    assert one.settings == settings[one.condition], one.condition


def test_holm_over_all_that_were_run(tmp_path):
  findings = page.write(tmp_path, results(0.2))
  assert set(page.holm(findings)) == {'metaxlm.dict', 'metaxlm.shuffled'}


# The quantile 0.975 of Student's t by degrees of freedom, of printed tables.
QUANTILES = {
  2: 4.302653,
  3: 3.182446,
  4: 2.776445,
  5: 2.570582,
  6: 2.446912,
  7: 2.364624,
  8: 2.306004,
  9: 2.262157,
  15: 2.131450,
  19: 2.093024,
}
ROW = re.compile(
  r'\| `(?P<name>[\w.]+)`(, twin of `(?P<beside>[\w.]+)`)? '
  r'\| `(?P<first>[\w/]+)`; `(?P<second>[\w/]+)` '
  r'\| (?P<measure>[\w/]+)(; (?P<other>[\w/]+))?( \(margin (?P<margin>[\d.]+)\))? '
  r'\| (?P<difference>\S+) \[(?P<low>\S+), (?P<high>\S+)\] '
  r'\| (< )?(?P<p>[\d.]+) \| [^|]+\| (?P<seeds>\d+) \|'
)


def recomputed(row, scores) -> tuple[np.ndarray, np.ndarray]:
  """The scores of both conditions, a seed each: numpy and the files alone."""
  first, second = scores[row['first']], scores[row['second']]
  one, other = row['measure'], row['other'] or row['measure']
  seeds = [s for s in first if s in second]
  return (
    np.array([first[s][one] for s in seeds]),
    np.array([second[s][other] for s in seeds]),
  )


def test_every_row_recomputed():
  """From results.json, by nothing that made the page."""
  scores: dict[str, dict[int, dict[str, float]]] = {}
  for one in json.loads((PUBLISHED / 'results.json').read_text()):
    scores.setdefault(one['condition'], {})[one['seed']] = one['measures']
  text = (PUBLISHED / 'index.md').read_text()
  told = {
    cells[0].strip('`'): cells
    for cells in (
      line.strip('| ').split(' | ')
      for line in text.split('\n## Conditions')[0].splitlines()
    )
    if len(cells) == 7
  }
  rows = [found for line in text.splitlines() if (found := ROW.match(line))]
  assert [row['name'] for row in rows] == [
    one.name for one in catalogue.MADE_UP.claims
  ]
  lows: dict[str, list[float]] = {}  # of the twins of each claim
  for row in rows[::-1]:  # twins stand below their claims
    first, second = recomputed(row, scores)
    gains = second - first
    reach = QUANTILES[len(gains) - 1] * gains.std(ddof=1) / np.sqrt(len(gains))
    want = gains.mean(), gains.mean() - reach, gains.mean() + reach
    got = [float(row[key]) for key in ('difference', 'low', 'high')]
    np.testing.assert_allclose(got, want, atol=0.0006, err_msg=row['name'])
    assert len(gains) == int(row['seeds'])
    if row['p'] != '0.050':  # the interval and the p-value say the same
      assert (float(row['p']) < 0.05) == (want[1] > 0 or want[2] < 0)
    if row['beside']:
      lows.setdefault(row['beside'], []).append(want[1])
    else:
      cells = told[row['name']]
      assert cells[3] == f'{first.mean():.3f}; {second.mean():.3f}'
      check_verdict(cells[6], row, want, lows.get(row['name'], []))


def check_verdict(verdict: str, row, interval, lows: list[float]) -> None:
  """The rule of the page's first paragraphs, written again."""
  _, low, high = interval
  margin = float(row['margin'] or 0.0)
  same = row['name'] == 'ecs.joint_vocabulary'
  if low > -margin and (high < margin or not same):
    twins = all(one > 0 for one in lows)
    assert ('not told from' in verdict) == (not twins), row['name']
    own = catalogue.MADE_UP.chosen((row['name'],))[0].counts
    assert ('no twin' in verdict) == (own and not lows), row['name']
    return
  below = high < -margin or (same and low > margin)
  assert ('contradicted' in verdict) == below, row['name']
  assert ('not resolved' in verdict) == (not below), row['name']


def crossed(row, scores, languages) -> np.ndarray:
  """Differences [seeds, languages] of a row of the page of real languages."""
  first, second = scores[row['first']], scores[row['second']]
  return np.array(
    [
      [
        second[seed][f'{row["measure"]}:{code}']
        - first[seed][f'{row["measure"]}:{code}']
        for code in languages
      ]
      for seed in sorted(first.keys() & second.keys())
    ]
  )


def recheck_real(folder: pathlib.Path) -> int:
  """Every judged row of `real.md` from `real.json`; how many there are."""
  scores: dict[str, dict[int, dict[str, float]]] = {}
  for one in json.loads((folder / 'real.json').read_text()):
    scores.setdefault(one['condition'], {})[one['seed']] = one['measures']
  text = (folder / 'real.md').read_text()
  rows = [found for line in text.splitlines() if (found := ROW.match(line))]
  for row in rows:
    change = crossed(row, scores, ('fr', 'ru', 'zh'))
    seeds, languages = change.mean(1), change.mean(0)
    parts = np.array(
      [seeds.var(ddof=1) / len(seeds), languages.var(ddof=1) / 3]
    )
    freedom = parts.sum() ** 2 / (parts**2 / [len(seeds) - 1, 2]).sum()
    reach = np.sqrt(parts.sum()) * quantile(freedom)
    want = change.mean(), change.mean() - reach, change.mean() + reach
    got = [float(row[key]) for key in ('difference', 'low', 'high')]
    np.testing.assert_allclose(got, want, atol=0.0016, err_msg=row['name'])
    assert len(seeds) == int(row['seeds'])
    told = ', '.join(
      f'{code} {gain:+.3f}'
      for code, gain in zip(('fr', 'ru', 'zh'), languages, strict=True)
    )
    assert row['beside'] or f'by language: {told}' in text, row['name']
  return len(rows)


def quantile(freedom: float) -> float:
  """Student's t, 0.975, by Simpson's rule and bisection: numpy alone."""

  def inside(bound: float) -> float:
    x = np.linspace(-bound, bound, 20_001)
    weights = np.where(np.arange(len(x)) % 2, 4.0, 2.0)
    weights[[0, -1]] = 1.0
    angles = (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    scale = math.exp(
      math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    ) / math.sqrt(math.pi * freedom)
    return scale * float(weights @ angles) * (x[1] - x[0]) / 3

  low, high = 0.0, 400.0
  for _ in range(60):
    middle = (low + high) / 2
    low, high = (middle, high) if inside(middle) < 0.95 else (low, middle)
  return low


def test_quantiles_by_printed_tables():
  for freedom, value in QUANTILES.items():
    assert quantile(freedom) == pytest.approx(value, abs=2e-4)


def test_every_real_row_recomputed(tmp_path):
  """The published ones; and made-up ones, however few are published."""
  recheck_real(PUBLISHED)
  rng = np.random.default_rng(0)
  made = [
    results_lib.Result(
      condition=one.name,
      seed=seed,
      settings='',
      measures={
        f'{name}{code}': 0.4 + 0.1 * rng.normal()
        for name in ('retrieval', 'transfer', 'source')
        for code in ('', ':fr', ':ru', ':zh')
      },
      cpu_seconds=1.0,
    )
    for one in catalogue.REAL.conditions
    for seed in range(3)
  ]
  page.write(tmp_path, made, study=catalogue.REAL)
  assert recheck_real(tmp_path) == len(catalogue.REAL.claims)
  text = (tmp_path / 'real.md').read_text()
  assert 'more languages would' in text or 'seeds would' in text
  assert '](real_ecs.png)' in text


def test_few_seeds_are_told(tmp_path):
  made = [
    dataclasses.replace(one, condition=name)
    for name in ('ecs/untrained', 'ecs/no_anchors')
    for one in results(0.2)[:2]
  ]
  page.write(tmp_path, made, study=catalogue.REAL)
  assert '| not run (2 of 3 seeds) |' in (tmp_path / 'real.md').read_text()

"""The page says what the results say, and nothing is typed."""

import dataclasses

import pytest

from xlflax.replication import catalogue, figures, page
from xlflax.replication import results as results_lib
from xlflax.replication.claims import Verdict


def results(difference: float) -> list[results_lib.Result]:
  """Runs of two conditions, three seeds each, with curves."""
  return [
    results_lib.Result(
      condition=name,
      seed=seed,
      settings='',
      measures={
        'transfer': 0.5 + 0.01 * seed + shift * (1 + 0.1 * seed),
        'retrieval': 0.1,
      },
      curve={
        str(step): {'loss': 3.0, 'retrieval': 0.2, 'cka': 0.5, 'transfer': 0.4}
        for step in (10, 20)
      },
      cpu_seconds=60.0,
    )
    for name, shift in (('metaxlm/both', 0.0), ('metaxlm/dict', difference))
    for seed in range(3)
  ]


@pytest.mark.parametrize(
  ('difference', 'verdict'),
  [(0.2, Verdict.REPRODUCED), (-0.2, Verdict.CONTRADICTED)],
)
def test_rows(tmp_path, difference, verdict):
  findings = page.write(
    tmp_path, results(difference), catalogue.chosen(('MetaXLM',))
  )
  by_name = {one.claim.name: one for one in findings}
  assert by_name['metaxlm.dict'].verdict is verdict
  assert by_name['metaxlm.both'].verdict is Verdict.NOT_RUN
  text = (tmp_path / 'index.md').read_text()
  row = next(line for line in text.splitlines() if '+Dict is above' in line)
  assert f'| 3 | 6.0 | {verdict.value} |' in row
  assert f'0.510; {0.51 + difference * 1.1:.3f}' in row
  assert f'1 {verdict.value}' in text
  assert '## ECS' not in text
  for name in ('metaxlm.png', f'{figures.CURVES}.png'):
    assert f']({name})' in text
    assert (tmp_path / name).stat().st_size > 1000


def test_the_page_is_made_anew_from_its_results(tmp_path):
  page.write(tmp_path / 'a', results(0.2))
  again = results_lib.read_all(tmp_path / 'a' / page.RESULTS)
  page.write(tmp_path / 'b', again)
  for name in ('index.md', page.RESULTS):
    assert (tmp_path / 'a' / name).read_text() == (
      tmp_path / 'b' / name
    ).read_text()


def test_holm_over_all_that_were_run(tmp_path):
  findings = page.write(tmp_path, results(0.2))
  adjusted = page.holm(findings)
  assert set(adjusted) == {'metaxlm.dict'}


def test_total_and_what_is_looked_into(tmp_path):
  claims = catalogue.chosen(('metaxlm.dict',))
  again = dataclasses.replace(
    claims[0], name='metaxlm.dict_again', looks_into='metaxlm.dict'
  )
  page.write(tmp_path, results(0.0), (*claims, again))
  text = (tmp_path / 'index.md').read_text()
  assert '**6.0 processor minutes** for the 6 runs' in text
  assert 'Of 1 claims of the papers' in text
  assert 'Of the 1 that were run and not reproduced, 1 are looked into' in text
  assert '(looks into `metaxlm.dict`)' in text


@pytest.mark.parametrize(
  ('difference', 'text'),
  [
    (0.2, 'broken on purpose, it loses in 1.\n'),
    (0.0, 'it loses in 0. It does not in `metaxlm.dict`: there'),
  ],
)
def test_what_broken_variants_say(tmp_path, difference, text):
  claim = catalogue.chosen(('metaxlm.dict',))[0]
  control = dataclasses.replace(claim, control=True)
  page.write(tmp_path, results(difference), (control,))
  assert text in (tmp_path / 'index.md').read_text()

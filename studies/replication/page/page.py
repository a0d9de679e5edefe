"""The page of claims: verdicts, figures, numbers and intervals, generated."""

import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from studies.replication import claims as claims_lib
from studies.replication import experiments, registry, token_budget
from studies.replication import results as results_lib
from studies.replication.claims import Claim, Finding, Scores, Verdict
from studies.replication.page import controls, figures, page_text, sensitivity
from studies.replication.registry import Study
from xlflax.evaluation.metrics import bootstrap
from xlflax.storage import paths

_TEXTS = {
  registry.SYNTHETIC.name: page_text.SYNTHETIC,
  registry.REAL.name: page_text.REAL,
}


def write(
  folder: pathlib.Path,
  found: Sequence[results_lib.Result],
  claims: Sequence[Claim] | None = None,
  study: Study = registry.SYNTHETIC,
) -> list[Finding]:
  """Writes page, figures and results.

  Args:
    folder: of the page.
    found: results of runs.
    claims: rows of the page; None: all.
    study: whose page it is.

  Returns:
    The findings, in the order of the claims.
  """
  texts = _TEXTS[study.name]
  results_lib.write_results(list(found), folder / study.results)
  # As they are kept, so that the page made anew from them is the same.
  found = sorted(
    results_lib.read_results(folder / study.results),
    key=functools.partial(_place, study),
  )
  scores = experiments.group_scores(found)
  findings = [
    claims_lib.evaluate_claim(claim, scores)
    for claim in (study.claims if claims is None else claims)
  ]
  drawn = figures.write(folder, findings, found, study)
  parts = [
    texts.introduction,
    _summary(findings),
    *_verdicts(findings, scores),
    '\n## Conditions\n',
    *(f'![{paper}: conditions]({name})\n' for paper, name in drawn.items()),
    texts.numbers.format(fewest=claims_lib.FEWEST_SEEDS),
    *_numbers(findings, found, scores, study),
    '',
    controls.sentence([one.claim for one in findings], scores),
    texts.dropped,
    _setting(found, scores, study),
  ]
  paths.write_atomically(folder / f'{study.name}.md', '\n'.join(parts))
  return findings


def _place(study: Study, one: results_lib.Result) -> tuple[int, int]:
  """By the conditions' order, what is no condition now last; then by seed."""
  places = {name: place for place, name in enumerate(study.conditions_by_name)}
  return places.get(one.condition, len(places)), one.seed


def judged(findings: Sequence[Finding]) -> dict[str, Verdict]:
  """Claim -> its verdict beside its twins, of all claims of papers."""
  return {
    one.claim.name: claims_lib.apply_controls(one, _twins(one, findings))
    for one in findings
    if one.claim.is_from_paper
  }


def _twins(one: Finding, findings: Sequence[Finding]) -> list[Finding]:
  return [
    other for other in findings if other.claim.control_for == one.claim.name
  ]


def _summary(findings: Sequence[Finding]) -> str:
  own = judged(findings)
  counts = ', '.join(
    f'{list(own.values()).count(verdict)} {verdict.label}'
    for verdict in Verdict
    if verdict in own.values()
  )
  return f'Of {len(own)} claims: {counts}.\n'


def _verdicts(findings: Sequence[Finding], scores: Scores) -> Iterator[str]:
  """The first table: a row for each claim."""
  verdicts = judged(findings)
  yield (
    '| name | claim | paper: first; second | ours: first; second '
    '| difference, 95 % interval | beside it | verdict |'
  )
  yield '| --- ' * 7 + '|'
  for one in findings:
    if not one.claim.control_for:
      verdict = verdicts.get(one.claim.name, one.verdict)
      yield (
        f'| `{one.claim.name}` | {one.claim.statement} '
        f'| {one.claim.published} ({one.claim.section}) '
        f'| {_means(one)} | {_difference(one)} '
        f'| {_beside(one, findings, scores)} | {_told(one, verdict)} |'
      )


def _means(one: Finding) -> str:
  if one.comparison is None:
    return '-'
  return f'{one.comparison.first:.3f}; {one.comparison.second:.3f}'


def _difference(one: Finding) -> str:
  if one.comparison is None:
    return '-'
  found = one.comparison
  return f'{found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}]'


def _beside(one: Finding, findings, scores: Scores) -> str:
  """What the twins say, and the other measure where it says otherwise."""
  cells = [
    f'{twin.claim.statement}: {_difference(twin)}'
    for twin in _twins(one, findings)
    if twin.comparison is not None
  ]
  if one.languages:
    own = (f'{code} {gain:+.3f}' for code, gain in one.languages.items())
    cells.insert(0, f'by language: {", ".join(own)}')
  other = sensitivity.by_other_measure(one, scores)
  if (
    other is not None and other.comparison and other.verdict is not one.verdict
  ):
    cells.append(f'by {other.claim.measure}: {_difference(other)}')
  return '; '.join(cells) or '-'


def _told(one: Finding, verdict: Verdict) -> str:
  """The verdict, and the budget that would tell more."""
  if verdict is Verdict.NOT_RUN and one.seeds:
    return (
      f'{verdict.label} ({len(one.seeds)} of {claims_lib.FEWEST_SEEDS} seeds)'
    )
  if verdict is not Verdict.NOT_RESOLVED or one.claim.margin:
    return verdict.label
  needed = claims_lib.seeds_to_resolve(one)
  if not needed:
    return verdict.label + (' (more languages would)' if one.errors else '')
  return f'{verdict.label} ({needed:,} seeds would)'


def _numbers(
  findings: Sequence[Finding], found, scores: Scores, study: Study
) -> Iterator[str]:
  """The second table: all rows."""
  adjusted = holm(findings)
  yield (
    '| name | first; second | measure | second - first | p | Holm | seeds '
    '| first seeds | tokens | minutes |'
  )
  yield '| --- ' * 10 + '|'
  for one in findings:
    claim = one.claim
    margin = f' (margin {claim.margin:g})' if claim.margin else ''
    p = '-' if one.comparison is None else _p(one.comparison.p_value)
    yield (
      f'| `{claim.name}`{_twin_of(claim)} '
      f'| `{claim.first}`; `{claim.second}` '
      f'| {claim.measure.replace("|", "; ")}{margin} | {_difference(one)} '
      f'| {p} | {_p(adjusted[claim.name]) if one.comparison else "-"} '
      f'| {len(one.seeds)} | {_first_seeds(one, scores)} '
      f'| {_tokens(claim, study)} '
      f'| {_minutes(claim, found):.1f} |'
    )


def _twin_of(claim: Claim) -> str:
  return f', twin of `{claim.control_for}`' if claim.control_for else ''


def _first_seeds(one: Finding, scores: Scores) -> str:
  """What the first seeds alone say, where it is something else."""
  fewer = sensitivity.by_first_seeds(one, scores)
  if fewer is None or fewer.verdict is one.verdict:
    return ''
  return f'{_difference(fewer)}'


def _p(value: float) -> str:
  return '< 0.001' if value < 0.001 else f'{value:.3f}'


def _minutes(claim: Claim, found: Sequence[results_lib.Result]) -> float:
  """Processor minutes of the runs of a claim's conditions."""
  names = {claim.first, claim.second}
  return sum(one.cpu_seconds for one in found if one.condition in names) / 60


def _tokens(claim: Claim, study: Study) -> str:
  """Thousands of tokens that the conditions of a claim read."""
  known = study.conditions_by_name
  first, second = (
    round(token_budget.count_tokens(known[name], known, study.size) / 1000)
    for name in (claim.first, claim.second)
  )
  return f'{first}' if first == second else f'{first}; {second}'


def holm(findings: Sequence[Finding]) -> dict[str, float]:
  """Claim -> p-value adjusted for all that were run."""
  run = [one for one in findings if one.comparison is not None]
  values = bootstrap.holm_correction(
    [one.comparison.p_value for one in run if one.comparison]
  )
  return {one.claim.name: value for one, value in zip(run, values, strict=True)}


def _setting(
  found: Sequence[results_lib.Result], scores: Scores, study: Study
) -> str:
  return _TEXTS[study.name].setting.format(
    size=study.size,
    probes='\n'.join(_probes(scores, study)),
    results=study.results,
    total=sum(one.cpu_seconds for one in found) / 60,
    runs=len(found),
    seeds=_range(sorted({one.seed for one in found})),
  )


def _probes(scores: Scores, study: Study) -> Iterator[str]:
  """Means over seeds of what tells how a condition came to its scores."""
  probes = _TEXTS[study.name].probes
  yield f'| condition | {" | ".join(probes.values())} |'
  yield '| --- ' * (1 + len(probes)) + '|'
  for one in study.conditions:
    if cells := _means_of(scores.get(one.name, {}), list(probes)):
      yield f'| {one.title} (`{one.name}`) | {" | ".join(cells)} |'


def _means_of(
  own: Mapping[int, Mapping[str, float]], probes: Sequence[str]
) -> list[str]:
  """A cell for each probe; [] where no seed has the first."""
  if not any(probes[0] in one for one in own.values()):
    return []
  cells = []
  for name in probes:
    values = [one[name] for one in own.values() if name in one]
    cells.append(f'{sum(values) / len(values):.3f}' if values else '-')
  return cells


def _range(seeds: Sequence[int]) -> str:
  return f'{seeds[0]} to {seeds[-1]}' if seeds else 'none'

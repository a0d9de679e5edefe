"""Generator for the replication study's result pages."""

import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from studies.replication import experiments, registry, seeds, token_budget
from studies.replication.claims import (
  FEWEST_SEEDS,
  Claim,
  Finding,
  Scores,
  Verdict,
  apply_controls,
  evaluate_claim,
  seeds_to_resolve,
)
from studies.replication.page import controls, figures, page_text, sensitivity
from studies.replication.registry import Study
from studies.replication.results import Result, read_results, write_results
from xlflax.evaluation.metrics import bootstrap
from xlflax.storage import paths

_TEXTS = {
  registry.SYNTHETIC.name: page_text.SYNTHETIC,
  registry.REAL.name: page_text.REAL,
}


def write_page(
  folder: pathlib.Path,
  results: Sequence[Result],
  claims: Sequence[Claim] | None = None,
  study: Study = registry.SYNTHETIC,
) -> list[Finding]:
  """Writes a result page with its figures and its results file.

  Args:
    folder: Directory to which the page is written.
    results: Results of the training runs.
    claims: Claims that the page reports. If None, all claims in the study.
    study: Study (synthetic or real languages) that the page describes.

  Returns:
    The findings, in the same order as the claims.
  """
  text = _TEXTS[study.name]
  write_results(list(results), folder / study.results)
  # Read the rounded results, so that a regenerated page is identical.
  results = sorted(
    read_results(folder / study.results),
    key=functools.partial(_sort_key, study),
  )
  scores = experiments.group_scores(results)
  findings = [
    evaluate_claim(claim, scores)
    for claim in (study.claims if claims is None else claims)
  ]
  files = figures.write_figures(folder, findings, results, study)
  parts = [
    text.introduction.format(fewest_seeds=FEWEST_SEEDS),
    '## Results\n',
    *_summary_table(findings),
    '',
    page_text.RESULTS,
    *_result_table(findings),
    '',
    text.controls,
    *_control_table(findings),
    *_other_measure_section(findings, scores),
    *_language_section(findings),
    '\n## Scores of the model variants\n',
    'In the following figures, each dot is the score of one seed. The bars '
    'show the mean over seeds and its 95 % confidence interval.\n',
    *(
      f'![Scores of the model variants of {paper}]({name})\n'
      for paper, name in files.items()
    ),
    text.statistics,
    *_statistics_table(findings, results, scores, study),
    *_false_positives(findings, scores),
    text.negative_results,
    text.setup.format(
      size=study.size,
      diagnostics='\n'.join(_diagnostics_table(scores, study)),
      results=study.results,
      total=sum(result.cpu_seconds for result in results) / 60,
      runs=len(results),
      seeds=_format_range(sorted({result.seed for result in results})),
    ),
  ]
  paths.write_atomically(folder / f'{study.name}.md', '\n'.join(parts))
  return findings


def _sort_key(study: Study, result: Result) -> tuple[int, int]:
  """Returns a key that sorts results by condition (unknown last) and seed."""
  positions = {
    name: position for position, name in enumerate(study.conditions_by_name)
  }
  return positions.get(result.condition, len(positions)), result.seed


def final_verdicts(findings: Sequence[Finding]) -> dict[str, Verdict]:
  """Returns the outcome for each claim of a paper, based on all experiments.

  Control experiments are also considered (see `claims.apply_controls`).
  """
  return {
    finding.claim.name: apply_controls(finding, _controls_of(finding, findings))
    for finding in findings
    if finding.claim.is_from_paper
  }


def _controls_of(
  finding: Finding, findings: Sequence[Finding]
) -> list[Finding]:
  return [
    other for other in findings if other.claim.control_for == finding.claim.name
  ]


def _own_claims(findings: Sequence[Finding]) -> list[Finding]:
  """Returns the findings that are not controls."""
  return [finding for finding in findings if not finding.claim.control_for]


def _table(
  header: Sequence[str], rows: Sequence[Sequence[str]]
) -> Iterator[str]:
  """Yields the lines of a Markdown table."""
  for cells in (header, ['---'] * len(header), *rows):
    yield f'| {" | ".join(cells)} |'


def _summary_table(findings: Sequence[Finding]) -> Iterator[str]:
  """Yields a table with the number of claims for each verdict."""
  verdicts = list(final_verdicts(findings).values())
  yield f'The experiments test {len(verdicts)} results of the papers:\n'
  yield from _table(
    ('outcome', 'results of the papers'),
    [
      (verdict.label, f'{verdicts.count(verdict)}')
      for verdict in Verdict
      if verdict in verdicts
    ],
  )


def _result_table(findings: Sequence[Finding]) -> Iterator[str]:
  """Yields a table with one row for each claim."""
  verdicts = final_verdicts(findings)
  yield from _table(
    (
      'name',
      'result',
      'paper: first; second',
      'here: first; second',
      'difference, 95 % interval',
      'outcome',
    ),
    [
      (
        f'`{finding.claim.name}`',
        finding.claim.statement,
        f'{finding.claim.published} ({finding.claim.section})',
        _means(finding),
        _difference(finding),
        _verdict(finding, verdicts.get(finding.claim.name, finding.verdict)),
      )
      for finding in _own_claims(findings)
    ],
  )


def _control_table(findings: Sequence[Finding]) -> Iterator[str]:
  """Yields a table with one row for each control that was run."""
  yield from _table(
    ('result', 'control', 'difference, 95 % interval'),
    [
      (f'`{finding.claim.name}`', control.claim.statement, _difference(control))
      for finding in _own_claims(findings)
      for control in _controls_of(finding, findings)
      if control.comparison is not None
    ],
  )


def _other_measure_section(
  findings: Sequence[Finding], scores: Scores
) -> Iterator[str]:
  """Yields the section on claims whose verdict depends on the measure."""
  rows = []
  for finding in _own_claims(findings):
    other = sensitivity.find_by_other_measure(finding, scores)
    if other and other.comparison and other.verdict is not finding.verdict:
      rows.append(
        (
          f'`{finding.claim.name}`',
          finding.claim.measure,
          _difference(finding),
          other.claim.measure,
          _difference(other),
        )
      )
  if not rows:
    return
  yield '\n## Results whose outcome depends on the measure\n'
  yield (
    'Most results are tested with one of two measures: `transfer` (tagging '
    'accuracy in a language without labeled training examples) or `retrieval` '
    '(accuracy of retrieving translations). The following table lists the '
    'results whose outcome would be different with the other measure.\n'
  )
  yield from _table(
    (
      'result',
      'measure',
      'difference, 95 % interval',
      'other measure',
      'difference, 95 % interval',
    ),
    rows,
  )


def _language_section(findings: Sequence[Finding]) -> Iterator[str]:
  """Yields the section on each language, if there are several."""
  rows = [finding for finding in _own_claims(findings) if finding.languages]
  codes = list(dict.fromkeys(code for row in rows for code in row.languages))
  if not codes:
    return
  yield '\n## Differences by language\n'
  yield (
    'The following table contains the score difference between the two model '
    'variants of each result, by language.\n'
  )
  yield from _table(
    ('result', *codes),
    [
      (
        f'`{row.claim.name}`',
        *(
          f'{row.languages[code]:+.3f}' if code in row.languages else '-'
          for code in codes
        ),
      )
      for row in rows
    ],
  )


def _means(finding: Finding) -> str:
  if finding.comparison is None:
    return '-'
  return f'{finding.comparison.first:.3f}; {finding.comparison.second:.3f}'


def _difference(finding: Finding) -> str:
  significance = finding.comparison
  if significance is None:
    return '-'
  return (
    f'{significance.difference:+.3f} '
    f'[{significance.low:+.3f}, {significance.high:+.3f}]'
  )


def _verdict(finding: Finding, verdict: Verdict) -> str:
  """Formats a verdict and, if not resolved, the number of required seeds."""
  label = verdict.label
  if verdict is Verdict.NOT_RUN and finding.seeds:
    return f'{label} ({len(finding.seeds)} of {FEWEST_SEEDS} seeds)'
  if verdict is not Verdict.NOT_RESOLVED or finding.claim.margin:
    return label
  num_seeds = seeds_to_resolve(finding)
  if num_seeds:
    return f'{label} ({num_seeds:,} seeds needed)'
  return f'{label} (more languages needed)' if finding.errors else label


def _statistics_table(
  findings: Sequence[Finding],
  results: Sequence[Result],
  scores: Scores,
  study: Study,
) -> Iterator[str]:
  """Yields the table with one row for each claim and each control."""
  adjusted = holm_p_values(findings)
  has_more_seeds = any(
    len(finding.seeds) > seeds.DEFAULT_COUNT for finding in findings
  )
  rows = []
  for finding in findings:
    claim = finding.claim
    margin = f' (margin {claim.margin:g})' if claim.margin else ''
    p_value = finding.comparison.p_value if finding.comparison else None
    rows.append(
      (
        f'`{claim.name}`{_control_label(claim)}',
        f'`{claim.first}`; `{claim.second}`',
        f'{claim.measure.replace("|", "; ")}{margin}',
        _difference(finding),
        '-' if p_value is None else _format_p(p_value),
        '-' if p_value is None else _format_p(adjusted[claim.name]),
        f'{len(finding.seeds)}',
        *([_first_seeds(finding, scores)] if has_more_seeds else []),
        _tokens(claim, study),
        f'{_cpu_minutes(claim, results):.1f}',
      )
    )
  yield from _table(
    (
      'name',
      'first; second',
      'measure',
      'second - first',
      'p',
      'Holm',
      'seeds',
      *(['first five seeds'] if has_more_seeds else []),
      'tokens (thousands)',
      'CPU minutes',
    ),
    rows,
  )


def _control_label(claim: Claim) -> str:
  if not claim.control_for:
    return ''
  return f', control experiment for `{claim.control_for}`'


def _first_seeds(finding: Finding, scores: Scores) -> str:
  """Formats the difference for the first seeds if their verdict differs."""
  first = sensitivity.find_by_first_seeds(finding, scores)
  if first is None or first.verdict is finding.verdict:
    return ''
  return _difference(first)


def _format_p(value: float) -> str:
  return '< 0.001' if value < 0.001 else f'{value:.3f}'


def _cpu_minutes(claim: Claim, results: Sequence[Result]) -> float:
  """Returns the CPU minutes of all runs of a claim's conditions."""
  names = {claim.first, claim.second}
  return (
    sum(result.cpu_seconds for result in results if result.condition in names)
    / 60
  )


def _tokens(claim: Claim, study: Study) -> str:
  """Formats how many thousand tokens each condition of a claim reads."""
  conditions = study.conditions_by_name
  first, second = (
    round(
      token_budget.count_tokens(conditions[name], conditions, study.size) / 1000
    )
    for name in (claim.first, claim.second)
  )
  return f'{first}' if first == second else f'{first}; {second}'


def holm_p_values(findings: Sequence[Finding]) -> dict[str, float]:
  """Returns the p-value of each claim, adjusted for multiple comparisons."""
  measured = [
    (finding.claim.name, finding.comparison)
    for finding in findings
    if finding.comparison is not None
  ]
  adjusted = bootstrap.holm_correction(
    [significance.p_value for _, significance in measured]
  )
  return {
    name: value for (name, _), value in zip(measured, adjusted, strict=True)
  }


def _false_positives(
  findings: Sequence[Finding], scores: Scores
) -> Iterator[str]:
  """Yields the sentence about the verdict rule's false positives."""
  sentence = controls.describe_false_positives(
    [finding.claim for finding in findings], scores
  )
  if sentence:
    yield ''
    yield sentence


def _diagnostics_table(scores: Scores, study: Study) -> Iterator[str]:
  """Yields a table of mean scores over seeds, with a row for each condition."""
  diagnostics = _TEXTS[study.name].diagnostics
  yield from _table(
    ('model variant', *diagnostics.values()),
    [
      (f'{condition.title} (`{condition.name}`)', *cells)
      for condition in study.conditions
      if (
        cells := _mean_cells(scores.get(condition.name, {}), list(diagnostics))
      )
    ],
  )


def _mean_cells(
  by_seed: Mapping[int, Mapping[str, float]], measures: Sequence[str]
) -> list[str]:
  """Returns one cell per measure, or [] if no seed has the first measure."""
  if not any(measures[0] in scores for scores in by_seed.values()):
    return []
  cells = []
  for name in measures:
    values = [scores[name] for scores in by_seed.values() if name in scores]
    cells.append(f'{sum(values) / len(values):.3f}' if values else '-')
  return cells


def _format_range(numbers: Sequence[int]) -> str:
  return f'{numbers[0]} to {numbers[-1]}' if numbers else 'none'

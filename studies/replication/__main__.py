"""Trains small models to replicate results of papers, and writes result pages.

    python -m studies.replication --all --work=runs/replication

Runs that have finished in the working directory are not repeated. Several
processes with the same working directory divide the runs among themselves.
"""

import argparse
import logging
import pathlib
import sys
from collections.abc import Sequence

from studies import command_line
from studies.replication import experiments, real_data, registry, results, seeds
from studies.replication.claims import Claim
from studies.replication.page import page

_NUM_REAL_SEEDS = 3  # Default number of seeds in real languages.


def build_parser() -> argparse.ArgumentParser:
  """Returns the argument parser of `python -m studies.replication`."""
  parser = command_line.create_parser('studies.replication', __doc__)
  selection = parser.add_mutually_exclusive_group(required=True)
  selection.add_argument(
    '--claim',
    action='append',
    metavar='NAME',
    help='Result of a paper (claim) to test, such as ecs.sep_emb, or a paper, '
    'such as ECS. Repeat the option for several.',
  )
  selection.add_argument(
    '--all', action='store_true', help='Test every result of the papers.'
  )
  selection.add_argument(
    '--page_only',
    action='store_true',
    help='Run nothing. Write the pages from OUTPUT/results.json and '
    'OUTPUT/real.json.',
  )
  add = parser.add_argument
  add(
    '--work',
    type=pathlib.Path,
    default=pathlib.Path('runs/replication'),
    help='Directory in which languages, runs and results are stored.',
  )
  add(
    '--output',
    type=pathlib.Path,
    help='Directory of the pages. Results that are stored there are not '
    'computed again. Defaults to WORK/page.',
  )
  add(
    '--seeds',
    type=int,
    help='Number of seeds for every condition. In synthetic languages, the '
    'default is the number of seeds on the published page. In real languages, '
    'the default is three.',
  )
  add(
    '--corpora',
    type=pathlib.Path,
    metavar='DIR',
    help='Directory of the real languages, as `xlflax build-corpus` writes '
    'them: DIR/disjoint with --mode=disjoint, DIR/parallel with '
    '--mode=parallel.',
  )
  add(
    '--treebanks',
    type=pathlib.Path,
    metavar='DIR',
    help=(
      'Directory with Universal Dependencies treebanks: en_*-train.conllu, '
      'and CODE_*-test.conllu of each language.'
    ),
  )
  add(
    '--dictionaries',
    type=pathlib.Path,
    metavar='DIR',
    help='Directory of bilingual dictionaries en-CODE*.tsv or .txt, for the '
    'claims that require them.',
  )
  add(
    '--budget',
    type=float,
    metavar='MINUTES',
    help='CPU minutes after which no more runs are started.',
  )
  command_line.add_compilation_cache(parser)
  return parser


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command, and returns the exit status."""
  return command_line.run_command(build_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> None:
  """Runs the experiments, judges the claims, and writes the result page."""
  output = args.output or args.work / 'page'
  if args.page_only:
    studies = [
      study for study in registry.STUDIES if (output / study.results).exists()
    ]
    for study in studies or [registry.SYNTHETIC]:
      _write_page(study, output, study.claims)
    return

  command_line.use_compilation_cache(args.compilation_cache)
  study, real_spec = registry.SYNTHETIC, None
  if args.corpora or args.treebanks or args.dictionaries:
    study = registry.REAL
    real_spec = real_data.RealSpec.from_folders(
      args.corpora, args.treebanks, args.dictionaries
    )
  claims = study.select_claims(() if args.all else tuple(args.claim))
  if real_spec and not real_spec.dictionaries:
    claims = study.without_dictionaries(claims)
  run_results = _run_claims(args, study, claims, output, real_spec)
  _write_page(study, output, claims, run_results)


def _run_claims(
  args: argparse.Namespace,
  study: registry.Study,
  claims: tuple[Claim, ...],
  output: pathlib.Path,
  real_spec: real_data.RealSpec | None,
) -> list[results.Result]:
  """Executes the runs that claims require, and returns their results."""
  conditions = study.required_conditions(claims)
  num_seeds = args.seeds
  if not num_seeds and study is registry.REAL:
    num_seeds = _NUM_REAL_SEEDS
  plan = experiments.Plan(
    conditions=conditions,
    seeds=tuple(range(num_seeds or 0)),
    extra_runs=() if num_seeds else tuple(seeds.plan_runs(conditions)),
    size=study.size,
    **({'data_spec': real_spec} if real_spec else {}),
  )
  experiments.check_work_directory(args.work)
  store = results.ResultStore(args.work / 'results')
  store.add_missing(results.read_results(output / study.results))
  return experiments.run_plan(plan, args.work, budget=args.budget)


def _write_page(
  study: registry.Study,
  output: pathlib.Path,
  claims: tuple[Claim, ...],
  run_results: list[results.Result] | None = None,
) -> None:
  """Writes the result page from all results, and prints the verdicts.

  If this call ran a condition, the condition's previous results are kept only
  if they have the same settings as the new results. A claim is omitted if it
  compares a condition from this call with a condition from an earlier call.

  Args:
    study: Study (synthetic or real languages) to which the claims belong.
    output: Directory to which the page is written.
    claims: Claims that this call has tested.
    run_results: Results of the runs in this call. If None, the results of all
      previous calls are used.
  """
  current_conditions: set[str] = set()
  if run_results is not None:
    current_conditions = {
      condition.name for condition in study.required_conditions(claims)
    }
  settings = {result.condition: result.settings for result in run_results or ()}
  previous_results = results.read_results(output / study.results)
  valid_results = [
    result
    for result in previous_results
    if result.condition not in current_conditions
    or settings.get(result.condition) == result.settings
  ]
  num_dropped = len(previous_results) - len(valid_results)
  if num_dropped:
    logging.warning(
      'Dropping %d results of other text or settings from the page.',
      num_dropped,
    )

  merged_results = {
    (result.condition, result.seed): result
    for result in (*valid_results, *(run_results or ()))
  }
  finished_conditions = {condition for condition, _ in merged_results}
  page_claims = []
  for claim in study.claims:
    compared = {claim.first, claim.second}
    is_finished = compared <= finished_conditions
    is_mixed = len(compared & current_conditions) == 1
    if claim in claims or (is_finished and not is_mixed):
      page_claims.append(claim)

  findings = page.write_page(
    output, list(merged_results.values()), page_claims, study
  )
  verdicts = page.final_verdicts(findings)
  for finding in findings:
    verdict = verdicts.get(finding.claim.name, finding.verdict)
    print(f'{finding.claim.name}: {verdict.label}')
  print(f'Wrote {output / study.name}.md.')


if __name__ == '__main__':
  sys.exit(main())

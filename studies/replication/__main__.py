"""Runs the papers' claims at small scale and writes the pages of verdicts.

    python -m studies.replication --all --work=runs/replication

Runs that are finished in the working directory are not repeated, and processes
that share it share the runs.
"""

import argparse
import logging
import pathlib
import sys
from collections.abc import Sequence

from studies import command_line
from studies.replication import experiments, real_worlds, registry
from studies.replication import results as results_lib
from studies.replication import seeds as seeds_lib
from studies.replication.page import page

_SEEDS = 3  # of each condition in real languages


def build_parser() -> argparse.ArgumentParser:
  """Returns the parser of `python -m studies.replication`."""
  parser = argparse.ArgumentParser(
    prog='python -m studies.replication',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  selection = parser.add_mutually_exclusive_group(required=True)
  selection.add_argument(
    '--claim',
    action='append',
    metavar='NAME',
    help='Claim (paper.name) or paper to run. May be repeated.',
  )
  selection.add_argument('--all', action='store_true', help='Run every claim.')
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
    help='Directory of languages, runs and results.',
  )
  add(
    '--output',
    type=pathlib.Path,
    help='Directory of the page. Results that are stored there are not '
    'computed again. Defaults to WORK/page.',
  )
  add(
    '--seeds',
    type=int,
    help='Number of seeds of every condition. Defaults to those of the '
    'published page, and to three in real languages.',
  )
  add(
    '--corpora',
    type=pathlib.Path,
    help='Real languages as `xlflax build-corpus` writes them: DIR/disjoint by '
    '--mode=disjoint, DIR/parallel by --mode=parallel.',
  )
  add(
    '--treebanks',
    type=pathlib.Path,
    help='Universal Dependencies: en_*-train.conllu, and CODE_*-test.conllu of '
    'each language.',
  )
  add(
    '--dictionaries',
    type=pathlib.Path,
    help='Files en-CODE*.tsv or .txt, for the claims that need them.',
  )
  add(
    '--budget',
    type=float,
    metavar='MINUTES',
    help='CPU minutes after which no further run is started.',
  )
  command_line.add_compilation_cache(parser)
  return parser


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status."""
  return command_line.run_command(build_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> None:
  """Runs, judges, writes the page, prints the verdicts."""
  work = args.work
  output = args.output or work / 'page'
  if args.page_only:
    studies = [
      one for one in registry.STUDIES if (output / one.results).exists()
    ]
    for study in studies or [registry.SYNTHETIC]:
      _write(study, output, study.claims)
    return
  command_line.use_compilation_cache(args.compilation_cache)
  study, texts = registry.SYNTHETIC, None
  if args.corpora or args.treebanks or args.dictionaries:
    study = registry.REAL
    texts = real_worlds.Texts.of(
      args.corpora, args.treebanks, args.dictionaries
    )
  claims = study.chosen(() if args.all else tuple(args.claim))
  if texts and not texts.dictionaries:
    claims = study.without_dictionaries(claims)
  _write(
    study, output, claims, _found(args, study, claims, work, output, texts)
  )


def _write(study, output, claims, found=None) -> None:
  """The page of results, new and old; prints what is found of the claims.

  Old results of conditions that were asked for now stay where they have the
  same settings; a claim compares results of one call.
  """

  needed = () if found is None else study.needed(claims)
  asked = {condition.name for condition in needed}
  settings = {one.condition: one.settings for one in found or ()}
  before = results_lib.read_results(output / study.results)
  kept = [
    one
    for one in before
    if one.condition not in asked or settings.get(one.condition) == one.settings
  ]
  if len(kept) < len(before):
    logging.warning(
      'The page loses %d results of other text or settings.',
      len(before) - len(kept),
    )
  both = {(one.condition, one.seed): one for one in (*kept, *(found or ()))}
  run = {condition for condition, _ in both}
  shown = [
    one
    for one in study.claims
    if one in claims
    or run.issuperset(pair := {one.first, one.second})
    and len(pair & asked) != 1
  ]
  findings = page.write_page(output, list(both.values()), shown, study)
  judged = page.final_verdicts(findings)
  for one in findings:
    verdict = judged.get(one.claim.name, one.verdict)
    print(f'{one.claim.name}: {verdict.label}')
  print(f'The page is {output / study.name}.md.')


def _found(
  args: argparse.Namespace, study, claims, work, output, texts
) -> list:
  """The results of the claims' runs."""
  conditions = study.needed(claims)
  seeds = args.seeds or (None if study is registry.SYNTHETIC else _SEEDS)
  plan = experiments.Plan(
    conditions=conditions,
    seeds=tuple(range(seeds or 0)),
    more=() if seeds else tuple(seeds_lib.planned(conditions)),
    size=study.size,
    **({'amounts': texts} if texts else {}),
  )
  experiments.check_work(work)
  results_lib.Store(work / 'results').take(
    results_lib.read_results(output / study.results)
  )
  return experiments.run(plan, work, budget=args.budget)


if __name__ == '__main__':
  sys.exit(main())

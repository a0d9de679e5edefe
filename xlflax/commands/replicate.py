"""`xlflax replicate`: the papers' claims, run and judged at small scale."""

import argparse
import pathlib

from xlflax.commands.flags import compilation

HELP = (
  'Runs small controlled experiments for what the papers claim, several seeds '
  'each, and writes a page with differences, 95 % intervals and verdicts.'
)


FLAGS = f"""
[one of, required]
--claim NAME (repeated): a claim (paper.name) or a paper; may be repeated
--all (switch): every claim
--page_only (switch): run nothing: write the page from OUTPUT/results.json
[]
--work DIR (default runs/replication): languages, runs and results; what is
  finished there is not run again
--output DIR: folder of the page (default: WORK/page)
--seeds (Count): of every condition (default: as many as on the published page,
  four or more)
--budget MINUTES (NonNegative): processor minutes after which no further run is
  begun
{compilation.FLAG}
"""


def run(args: argparse.Namespace) -> int:
  """Runs, judges, writes the page, prints the verdicts."""
  from xlflax.replication import catalogue
  from xlflax.replication import results as results_lib
  from xlflax.replication.page import page
  from xlflax.storage import paths

  work = paths.local(args.work, where='--work')
  output = (
    paths.local(args.output, where='--output') if args.output else work / 'page'
  )
  if args.page_only:
    found = results_lib.read_all(output / page.RESULTS)
  else:
    compilation.use(args.compilation_cache)
    found = _found(args, work)
  claims = catalogue.chosen(() if args.all else tuple(args.claim))
  findings = page.write(output, found, claims)
  judged = page.judged(findings)
  for one in findings:
    verdict = judged.get(one.claim.name, one.verdict)
    print(f'{one.claim.name}: {verdict.value}')
  print(f'The page is {output / "index.md"}.')
  return 0


def _found(args: argparse.Namespace, work: pathlib.Path) -> list:
  """The results of the claims' runs."""
  from xlflax.replication import catalogue, experiments
  from xlflax.replication import seeds as seeds_lib

  claims = catalogue.chosen(() if args.all else tuple(args.claim))
  conditions = catalogue.needed(claims)
  given = args.seeds is not None
  plan = experiments.Plan(
    conditions=conditions,
    seeds=tuple(range(args.seeds)) if given else (),
    more=() if given else tuple(seeds_lib.planned(conditions)),
  )
  experiments.check_work(work)
  return experiments.run(plan, work, budget=args.budget)

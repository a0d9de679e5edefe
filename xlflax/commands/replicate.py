"""`xlflax replicate`: the papers' claims, run and judged at small scale."""

import argparse
import logging

from xlflax.commands.flags import compilation

HELP = (
  'Runs small controlled experiments for what the papers claim, several seeds '
  'each, and writes a page with differences, 95 % intervals and verdicts.'
)


FLAGS = f"""
[one of, required]
--claim NAME (repeated): a claim (paper.name) or a paper; may be repeated
--all (switch): every claim
--page_only (switch): run nothing: write the pages from OUTPUT/results.json
  and OUTPUT/real.json
[]
--work DIR (default runs/replication): languages, runs and results; what is
  finished there is not run again, and processes that share it share the runs
--output DIR: folder of the page (default: WORK/page); runs whose results stand
  there are not made again
--seeds (Count): of every condition (default: as many as on the published page,
  four or more; in real languages three)
--corpora DIR (path): real languages, as `xlflax corpora` writes them:
  DIR/disjoint by --mode=disjoint, DIR/parallel by --mode=parallel
--treebanks DIR (path): Universal Dependencies of these: a file
  `en_…-train….conllu`, and `CODE_…-test….conllu` of each language
--dictionaries DIR (path): files `en-CODE….tsv` or `.txt`, for the claims that
  need them
--budget MINUTES (NonNegative): processor minutes after which no further run is
  begun
{compilation.FLAG}
"""
_SEEDS = 3  # of each condition in real languages


def run(args: argparse.Namespace) -> int:
  """Runs, judges, writes the page, prints the verdicts."""
  from xlflax.replication import catalogue, real_worlds
  from xlflax.storage import paths

  work = paths.local(args.work, where='--work')
  output = (
    paths.local(args.output, where='--output') if args.output else work / 'page'
  )
  if args.page_only:
    studies = [
      one for one in catalogue.STUDIES if (output / one.results).exists()
    ]
    for study in studies or [catalogue.MADE_UP]:
      _write(study, output, study.claims)
    return 0
  compilation.use(args.compilation_cache)
  study, texts = catalogue.MADE_UP, None
  if args.corpora or args.treebanks or args.dictionaries:
    study = catalogue.REAL
    texts = real_worlds.Texts.of(
      args.corpora, args.treebanks, args.dictionaries
    )
  claims = study.chosen(() if args.all else tuple(args.claim))
  if texts and not texts.dictionaries:
    claims = study.without_dictionaries(claims)
  _write(
    study, output, claims, _found(args, study, claims, work, output, texts)
  )
  return 0


def _write(study, output, claims, found=None) -> None:
  """The page of results, new and old; prints what is found of the claims.

  Old results of conditions that were asked for now stay where they have the
  same settings; a claim compares results of one call.
  """
  from xlflax.replication import results as results_lib
  from xlflax.replication.page import page

  needed = () if found is None else study.needed(claims)
  asked = {condition.name for condition in needed}
  settings = {one.condition: one.settings for one in found or ()}
  before = results_lib.read_all(output / study.results)
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
  findings = page.write(output, list(both.values()), shown, study)
  judged = page.judged(findings)
  for one in findings:
    verdict = judged.get(one.claim.name, one.verdict)
    print(f'{one.claim.name}: {verdict.value}')
  print(f'The page is {output / study.name}.md.')


def _found(
  args: argparse.Namespace, study, claims, work, output, texts
) -> list:
  """The results of the claims' runs."""
  from xlflax.replication import catalogue, experiments
  from xlflax.replication import results as results_lib
  from xlflax.replication import seeds as seeds_lib

  conditions = study.needed(claims)
  seeds = args.seeds or (None if study is catalogue.MADE_UP else _SEEDS)
  plan = experiments.Plan(
    conditions=conditions,
    seeds=tuple(range(seeds or 0)),
    more=() if seeds else tuple(seeds_lib.planned(conditions)),
    size=study.size,
    **({'amounts': texts} if texts else {}),
  )
  experiments.check_work(work)
  results_lib.Store(work / 'results').take(
    results_lib.read_all(output / study.results)
  )
  return experiments.run(plan, work, budget=args.budget)

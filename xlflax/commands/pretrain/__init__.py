"""`xlflax pretrain`: vocabulary, cache, training and evaluation of a corpus."""

import argparse
import json
import logging
import pathlib
import shlex
import tempfile

from xlflax import cli
from xlflax.commands.flags import gin_flags
from xlflax.commands.pretrain import choices, stages
from xlflax.foundation import errors
from xlflax.storage import bucket_checks, manifests, paths

HELP = (
  'Pretrains an encoder on a corpus in one command, for the simple case: '
  'chooses vocabulary size, recipe and steps for the text and the devices that '
  'are there, prints the commands that it stands for, and runs them: `xlflax '
  'vocab`, `cache`, `train` and, where text is held out, `evaluate`. Run again '
  'after an interruption, it goes on where it stopped.'
)


FLAGS = f"""
corpus CORPUS: corpus directory, or a folder of files that are named by language
--output DIR (required): for vocabulary, cache and the run (DIR/model)
--languages CODES: comma-separated; all by default
[one of, required]
--hours (Positive): of training, beside the time of vocabulary and cache; some
  steps are timed first
--steps (Count)
[]
--vocabulary_size (Count): entries (default: as suits the text)
--preemption_exit_code (Natural, default 0): exit status after a signal; 0: as of the
  command it came to
--dry_run (switch): print the commands, and run none (--hours still times steps)
{gin_flags.FLAGS}
"""


def run(args: argparse.Namespace) -> int:
  """Prints the commands, and runs them in turn."""
  source = stages.Source.of(args.corpus, args.languages, args.output)
  from xlflax.examination import pretraining

  output = paths.of(args.output)
  record = _record(args, source, output)
  commands = stages.commands(args, source, choices.Choice(**record['choice']))
  print(record['choice']['told'], *source.shell(), sep='\n')
  print(*map(shlex.join, commands), sep='\n', flush=True)
  if args.dry_run:
    return 0
  bucket_checks.check_usable(output)
  source.link(source.directory)
  quiet = ['--quiet'] if logging.getLogger().level > logging.INFO else []
  for words in commands:
    status = cli.main([*quiet, *words[1:]])
    if status == errors.ExitStatus.INTERRUPTED:
      return args.preemption_exit_code or status
    if status or not stages.is_done(words, args.output):
      return status
    content = {pretraining.RECORD: json.dumps(record, indent=2) + '\n'}
    manifests.write(output, manifests.Kind.PRETRAINING, content)
  return 0


def _record(
  args: argparse.Namespace, source: stages.Source, output: pathlib.Path
) -> dict:
  """What the same command chose before, or what suits text and devices.

  Raises:
    RunDirectoryError: the output holds what another command has begun, or its
      choice is damaged.
  """
  from xlflax.data.corpus import directory
  from xlflax.examination import pretraining

  names = ('languages', 'hours', 'steps', 'vocabulary_size')
  asked = {name: getattr(args, name) for name in names} | {
    'gin': [*args.gin_file, *args.gin_bindings]
  }
  path = output / pretraining.RECORD
  if path.exists() or (output / manifests.FILE).exists():
    if problems := manifests.problems(output):
      raise errors.RunDirectoryError(
        'What was chosen is damaged',
        got='; '.join(problems.values()),
        where=str(output),
        fix=f'xlflax doctor {output} says what can be done',
      )
    found = json.loads(path.read_text(encoding='utf-8'))
    if found['asked'] != asked:
      raise errors.RunDirectoryError(
        'The output holds what another command has begun',
        got=str(asked),
        expected=str(found['asked']),
        where=str(path),
        fix='give another --output, or change what --dry_run prints',
      )
    return found
  with tempfile.TemporaryDirectory() as links:
    corpus = directory.Corpus(source.link(links))
    choice = choices.choose(args, corpus)
  return {'asked': asked, 'choice': choice._asdict()}

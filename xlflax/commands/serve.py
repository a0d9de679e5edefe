"""`xlflax serve`: runs live in a browser, or an encoder to try."""

import argparse
import contextlib
import itertools
import pathlib
import tempfile

from xlflax.commands import report
from xlflax.commands.flags import language_files, parsing
from xlflax.configuration import early
from xlflax.foundation import errors
from xlflax.storage import mirrors

HELP = (
  'Shows the page of runs while they train, or a form to try an encoder, to '
  'a browser on this machine.'
)
_MOST = 1000
RULES: tuple[parsing.Rule, ...] = (parsing.Needs('texts', 'encoder'),)


FLAGS = f"""
runs RUN (any number): model directory, or NAME=DIR
--encoder RUN: try this run instead of showing runs
--texts LANGUAGE=FILE (repeated): lines among which neighbours are sought, the
  first {_MOST:,} of a file; may be repeated
--host (default 127.0.0.1): address to listen at; there is no password: others
  than this machine's let the network in
--port (Natural, default 8000): 0 takes a free one
"""


def run(args: argparse.Namespace) -> int:
  """Serves until Ctrl-C."""
  if bool(args.runs) == bool(args.encoder):
    raise errors.ConfigError(
      'Either runs are shown, or one encoder is tried',
      expected='model directories, or --encoder=RUN',
      where='xlflax serve',
    )
  with tempfile.TemporaryDirectory(prefix='xlflax-serve-') as folder:
    answer = _encoder(args) if args.encoder else _runs(args, folder)
    from xlflax.runs import server

    opened = server.open_server(answer, host=args.host, port=args.port)
    with opened, contextlib.suppress(KeyboardInterrupt):
      print(f'http://{args.host}:{opened.server_port}/', flush=True)
      opened.serve_forever()
  return 0


def _runs(args: argparse.Namespace, folder: str):
  named = report.named(args.runs)
  for directory in named.values():
    early.check_run('RUN', directory)
  from xlflax.runs import service

  return service.runs_page(named, pathlib.Path(folder), args.command_line)


def _encoder(args: argparse.Namespace):
  early.check_run('--encoder', args.encoder)
  named = language_files.parse(args.texts, where='--texts')
  from xlflax.data.labelled.readers import files
  from xlflax.runs import run as run_lib
  from xlflax.runs import service, trial

  texts = {}
  for language, file in named.items():
    numbered = files.read_lines(mirrors.here(file))
    lines = (line.strip() for _, line in numbered)
    texts[language] = tuple(itertools.islice(filter(None, lines), _MOST))
  opened = run_lib.open_run(args.encoder)
  asked = trial.Trial(run=opened, texts=texts)
  return service.EncoderPage(asked, f'{args.encoder}, step {opened.step}')

"""`xlflax verify`: verifies and repairs the files that commands write."""

import dataclasses
import json
import pathlib
import sys
from typing import Any

import cyclopts

from xlflax.cli import options as shared_options
from xlflax.storage import manifests, paths
from xlflax.utils import errors, logs


@cyclopts.Parameter(
  name='*',
  group=cyclopts.Group(
    'Text of a token cache',
    help='Options with which the cache was written, for --repair.',
  ),
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheTextOptions:
  """Vocabulary and text for rewriting damaged token-cache shards.

  Attributes:
    vocabulary: Directory written by `xlflax vocab`.
    corpus: Corpus directory.
    task_module: Module that registers SeqIO tasks, as an importable name or the
      path of a Python file. Repeat the option for several modules.
    tfds_data_dir: Directory that contains prepared TensorFlow Datasets.
  """

  vocabulary: str | None = None
  corpus: str | None = None
  task_module: tuple[str, ...] = ()
  tfds_data_dir: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions:
  """Verifies runs, caches, vocabularies and other outputs of xlflax.

  Reports missing and damaged files in runs, token caches, vocabularies,
  preprocessed corpora, hyperparameter searches, suites, evaluations, analyses,
  exported models and reports with a file `scores.json`, and explains how to
  restore them. Other reports of `xlflax report` contain no digests. The exit
  code is 2 if an output is damaged or does not exist.

  Attributes:
    directories: Files and directories to verify.
    json: Print JSON instead of text.
    repair: Regenerate derived files: manifests, pages, and a run's small files,
      which are restored from its checkpoint. Damaged cached examples are
      removed, so that the next run computes them again. To repair a token
      cache's shards, pass --vocabulary and the options that specify the text.
  """

  directories: tuple[str, ...] = dataclasses.field(kw_only=False)
  json: bool = False
  repair: bool = False
  cache_text: CacheTextOptions = CacheTextOptions()

  def __post_init__(self):
    shared_options.check_requires(
      self, ['vocabulary'], requires='--repair', satisfied=self.repair
    )
    shared_options.check_requires(
      self,
      ['corpus', 'task_module', 'tfds_data_dir'],
      requires='--vocabulary',
      satisfied=self.cache_text.vocabulary is not None,
    )


EXAMPLES = r"""
Verify a run, or other artifacts:
  xlflax verify runs/mlm
  xlflax verify cache vocabulary --json

Regenerate derived files, and report what cannot be restored:
  xlflax verify runs/mlm --repair

Write missing and damaged shards of a token cache again from its text:
  xlflax verify cache --repair --vocabulary=vocabulary --corpus=corpus
"""


def main(options: VerifyOptions) -> int:
  """Prints the findings and returns 2 if an artifact is damaged or missing."""
  from xlflax import integrity

  results: list[dict[str, Any]] = []
  statuses: list[errors.ExitStatus] = []
  for name in options.directories:
    directory = paths.to_path(name)
    try:
      if options.repair:
        report = _repair(directory, options.cache_text)
      else:
        report = integrity.verify_directory(directory)
    except (errors.XlflaxError, OSError) as exception:
      error = exception
      if isinstance(error, OSError):
        error = errors.convert_os_error(error)
      logs.log_exit('verify', error, as_json=options.json)
      statuses.append(error.status)
      results.append({'directory': name, 'findings': [], 'error': error.parts})
      continue
    statuses.append(
      errors.ExitStatus.DONE if report.is_valid else errors.ExitStatus.MISTAKE
    )
    results.append(report.to_json())
    if not options.json:
      print(integrity.format_report(report), flush=True)
  if options.json:
    print(json.dumps(results, indent=2))
  return errors.joint_status(statuses)


def _repair(directory: pathlib.Path, cache_text: CacheTextOptions):
  """Repairs an artifact and returns the report after the repair."""
  from xlflax import integrity

  result = integrity.repair_directory(directory, log_progress=_print_progress)
  is_cache = result.kind is manifests.Kind.CACHE
  if result.is_valid or not is_cache or cache_text.vocabulary is None:
    return result
  from xlflax.cli import cache_repair

  removed = cache_repair.rewrite_damaged_files(
    directory,
    vocabulary=cache_text.vocabulary,
    corpus=cache_text.corpus,
    task_module=cache_text.task_module,
    tfds_data_dir=cache_text.tfds_data_dir,
  )
  _print_progress(f'Rewrote: {", ".join(removed) or "missing files"}')
  return integrity.verify_directory(directory)


def _print_progress(line: str) -> None:
  """Prints a line to standard error."""
  print(line, file=sys.stderr)

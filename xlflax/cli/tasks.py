"""`xlflax tasks`: lists SeqIO tasks, prints examples, converts public data."""

import dataclasses
import fnmatch
import json
import logging
from typing import Annotated

import cyclopts

from xlflax.cli import options as shared_options
from xlflax.cli import output_paths
from xlflax.utils import errors, logs


@cyclopts.Parameter(name='*', group=cyclopts.Group('Task registration'))
@dataclasses.dataclass(frozen=True, kw_only=True)
class RegistrationOptions:
  """Sources of SeqIO tasks in addition to the public TFDS corpora.

  Attributes:
    corpus: Corpus directory. Registers the tasks `corpus.*`.
    task_module: Module that registers SeqIO tasks, as an importable name or the
      path of a Python file. Repeat the option for several modules.
    xtreme: Directory that XTREME's download script wrote. Registers the tasks
      `xtreme.*`.
    treebanks: Directory of Universal Dependencies treebanks. Registers the
      tasks `ud.*`.
    tfds_data_dir: Directory that contains prepared TensorFlow Datasets.
  """

  corpus: str | None = None
  task_module: tuple[str, ...] = ()
  xtreme: str | None = None
  treebanks: str | None = None
  tfds_data_dir: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListOptions:
  """Lists the registered tasks and mixtures.

  Without a pattern, the table has one line for each family of tasks, such as
  `mc4`, with its number of tasks and languages.

  Attributes:
    pattern: Pattern with wildcards that selects tasks and mixtures by name,
      such as `'mc4.*'`. With `'*'`, all tasks and mixtures are listed.
    json: Print all matching tasks and mixtures as JSON instead of a table.
  """

  pattern: str | None = dataclasses.field(default=None, kw_only=False)
  json: bool = False
  registration: RegistrationOptions = RegistrationOptions()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowOptions:
  """Prints decoded examples of a task after each preprocessing step.

  For a mixture, prints the tasks it contains and their sampling rates.

  Attributes:
    name: Name of the task or mixture.
    vocabulary: Directory written by `xlflax vocab`. If it is given, the
      tokenized examples are printed too.
    split: Split to read.
    num_examples: Number of examples to print after each step.
  """

  name: str = dataclasses.field(kw_only=False)
  vocabulary: str | None = None
  split: str = 'train'
  num_examples: Annotated[
    shared_options.PositiveInt, cyclopts.Parameter(alias='-n')
  ] = 3
  registration: RegistrationOptions = RegistrationOptions()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions:
  """Describes public evaluation sets and converts downloaded ones.

  Without a name, lists all data sets. With only a name, describes the data set
  and how to download it.

  Attributes:
    name: Name of the data set.
    input: Directory of the downloaded data set.
    output: Directory to write the converted data set to.
  """

  name: str | None = dataclasses.field(default=None, kw_only=False)
  input: str | None = None
  output: str | None = None

  def __post_init__(self):
    shared_options.check_requires(
      self, ['output'], requires='--input', satisfied=self.input is not None
    )
    shared_options.check_requires(
      self,
      ['input'],
      requires='the name of a data set',
      satisfied=self.name is not None,
      fix='Run `xlflax tasks convert` to list the names.',
    )
    shared_options.check_requires(
      self, ['input'], requires='--output', satisfied=self.output is not None
    )


EXAMPLES = r"""
List the families of tasks, all tasks of a corpus, or all tasks as JSON:
  xlflax tasks list
  xlflax tasks list 'corpus.*' --corpus=corpus
  xlflax tasks list 'wmt19*' --json

Show the examples of a task after each step, or the rates of a mixture:
  xlflax tasks show corpus.mono.en --corpus=corpus --vocabulary=vocabulary
  xlflax tasks show corpus.parallel --corpus=corpus

Use the evaluation sets that XTREME's script downloaded, and treebanks:
  xlflax tasks list 'xtreme.*' --xtreme=xtreme/download
  xlflax tasks show xtreme.xnli.fr --xtreme=xtreme/download --split=validation
  xlflax tasks show ud.trees.fr --treebanks=ud-treebanks-v2.5

List public data sets, describe one, and convert a download:
  xlflax tasks convert
  xlflax tasks convert sib200
  xlflax tasks convert sib200 --input=sib-200/data/annotated --output=sib200

Show one of your own tasks, from ./my_tasks.py (docs/tasks.md):
  xlflax tasks show news.sw --task_module=my_tasks -n 5
"""


def list_tasks(options: ListOptions) -> None:
  """Prints the registered tasks and mixtures whose names match the pattern."""
  _register(options.registration)
  from xlflax.data import task_report

  rows = [
    row
    for row in task_report.list_registered()
    if fnmatch.fnmatchcase(row['name'], options.pattern or '*')
  ]
  if not rows:
    raise errors.CorpusError(
      'No registered task or mixture matches the pattern',
      got=options.pattern,
      fix='Run `xlflax tasks list` without a pattern to list all families. A '
      "pattern may contain wildcards, such as 'wiki40b.*'."
      + (
        ' Pass --corpus=DIR to include the tasks of a corpus.'
        if options.registration.corpus is None
        else ''
      ),
    )
  if options.json:
    print(json.dumps(rows, indent=2))
    return
  if options.pattern is None:
    families = task_report.group_by_family(rows)
    print(
      task_report.format_table(
        families, ('family', 'kind', 'tasks', 'languages', 'splits')
      )
    )
    print(
      "\n`xlflax tasks list 'FAMILY.*'` lists the tasks of a family. "
      "`xlflax tasks list '*'` lists all tasks."
    )
    return
  print(task_report.format_table(rows, ('name', 'kind', 'languages', 'splits')))


def show(options: ShowOptions) -> None:
  """Prints examples of a task, or lists the tasks of a mixture."""
  _register(options.registration)
  import seqio

  from xlflax.data import task_report
  from xlflax.data.tokenizers.base_vocabulary import Vocabulary

  if options.name in seqio.MixtureRegistry.names():
    _show_mixture(options)
    return
  vocabulary = (
    Vocabulary.load(options.vocabulary) if options.vocabulary else None
  )
  for line in task_report.describe_preprocessing(
    options.name,
    vocabulary,
    split=options.split,
    num_examples=options.num_examples,
  ):
    print(line)
  _warn_of_split_problems(options.name)


def convert(options: ConvertOptions) -> None:
  """Lists, describes or converts public data sets."""
  from xlflax.tasks import public_data

  if options.name is None:
    for data in public_data.list_data_sets().values():
      print(f'{data.name:10} {data.kind}; {data.languages}; {data.licence}')
    return
  if options.input is None or options.output is None:
    print(public_data.find_data_set(options.name).describe())
    return
  output_paths.check_differs(options.input, options.output, option='output')
  file_names = public_data.convert(options.name, options.input, options.output)
  print(
    f'Wrote {len(file_names)} files to {options.output}, such as '
    f'{file_names[0]}.'
  )


SUBCOMMANDS = {'list': list_tasks, 'show': show, 'convert': convert}


def _register(options: RegistrationOptions) -> None:
  """Registers the tasks from the sources selected by the options."""
  from xlflax.data.seqio_tasks import tensorflow_setup  # Imports TensorFlow.

  tensorflow_setup.load_tensorflow()
  from xlflax.data.seqio_tasks import task_registration

  task_registration.register_tasks(
    options.corpus, list(options.task_module), options.tfds_data_dir
  )
  if options.xtreme or options.treebanks:
    from xlflax.tasks import xtreme

    if options.xtreme:
      xtreme.register(options.xtreme)
    if options.treebanks:
      xtreme.register_treebanks(options.treebanks)


def _warn_of_split_problems(name: str) -> None:
  """Logs warnings on differences between the splits of a task."""
  from xlflax.data.seqio_tasks import task_registry, task_samples

  for split in task_registry.get_task(name).splits:
    for message in task_samples.compare_splits([name], split):
      logging.warning('%s', message, extra=logs.ONCE)


def _show_mixture(options: ShowOptions) -> None:
  """Prints the tasks of a mixture with their sampling rates."""
  from xlflax.data import task_errors, task_report
  from xlflax.data.seqio_tasks import task_registry
  from xlflax.utils import name_suggestions

  task_names = task_registry.task_names(options.name, split=options.split)
  shared_options.check_excludes(
    options,
    ['vocabulary', 'num_examples'],
    excluded_by=f'the mixture {options.name}',
    given=True,
    fix='To show examples, pass the name of one of the tasks of the mixture: '
    f'{name_suggestions.format_names(task_names)}.',
  )
  rows = task_report.mixture_rates(options.name, split=options.split)
  print(
    task_report.format_table(
      rows, ('name', 'languages', 'examples', 'rate', 'share')
    )
  )
  command = task_errors.show_command(rows[0]['name'])
  print(f'\n`{command}` shows examples.')

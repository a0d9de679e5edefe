"""GLUE's folder: the sources of its tasks, as its download script leaves them.

The test sets are blind, so the dev sets are what is compared. Columns are those
that Hugging Face's processors read.

Wang et al. 2019, "GLUE: A Multi-Task Benchmark and Analysis Platform for
Natural Language Understanding".
"""

from collections.abc import Mapping

from xlflax.data.supervised.sources import example_source
from xlflax.utils import errors, name_suggestions, validation

_Columns = Mapping[str, int | str]
_PAIR: _Columns = {'text': 1, 'paired_text': 2, 'label': 3}
_MNLI: _Columns = {
  'text': 'sentence1',
  'paired_text': 'sentence2',
  'label': 'gold_label',
}
# Task: its folder, the dev set, and where texts and label are.
TASKS: Mapping[str, tuple[str, str, _Columns]] = {
  'cola': ('CoLA', 'dev', {'text': 3, 'label': 1}),
  'sst2': ('SST-2', 'dev', {'text': 0, 'label': 1}),
  'mrpc': ('MRPC', 'dev', {'text': 3, 'paired_text': 4, 'label': 0}),
  'stsb': ('STS-B', 'dev', {'text': 7, 'paired_text': 8, 'label': 9}),
  'qqp': ('QQP', 'dev', {'text': 3, 'paired_text': 4, 'label': 5}),
  'mnli': ('MNLI', 'dev_matched', _MNLI),
  'mnli_mm': ('MNLI', 'dev_mismatched', _MNLI),
  'qnli': ('QNLI', 'dev', _PAIR),
  'rte': ('RTE', 'dev', _PAIR),
  'wnli': ('WNLI', 'dev', _PAIR),
}


@validation.validate_call
def examples(
  directory: str,
  name: str,
  split: str = 'dev',
  *,
  max_examples: validation.PositiveInt | None = None,
) -> example_source.FileExamples:
  """The source of a task's split, of the part 'en'.

  Args:
    directory: with `CoLA/train.tsv` and so on.
    name: of `TASKS`; 'mnli_mm' has the mismatched dev set.
    split: 'train' or 'dev'.
    max_examples: the first so many; None: all.

  Raises:
    ConfigError: no such task or split.
  """
  for what, got, known in (
    ('task', name, TASKS),
    ('split', split, ('train', 'dev')),
  ):
    if got not in known:
      raise errors.ConfigError(
        f'GLUE has no such {what}',
        got=got,
        expected='one of ' + ', '.join(known),
        fix=name_suggestions.did_you_mean(got, known),
      )
  folder, dev, columns = TASKS[name]
  file = 'train' if split == 'train' else dev
  return example_source.FileExamples(
    format='rated_pairs' if name == 'stsb' else 'tsv',
    files={'en': f'{directory}/{folder}/{file}.tsv'},
    options={
      'columns': columns,
      'header': 'none' if name == 'cola' else 'first_line',
    },
    max_examples=max_examples,
  )

"""GLUE examples, read from the folder that GLUE's download script creates.

The test set labels are not public, so scores are compared on the dev sets. The
columns are the same as those read by Hugging Face's GLUE processors.

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
# Map from task to its folder, its dev set, and the columns of texts and label.
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
) -> example_source.FileDataset:
  """Returns a source of the English examples in one split of a GLUE task.

  Args:
    directory: Folder that contains `CoLA/train.tsv` and the other tasks' files.
    name: Name of a task in `TASKS`. 'mnli_mm' is MNLI with the mismatched dev
      set.
    split: Name of the split: 'train' or 'dev'.
    max_examples: Maximum number of examples. If None, all examples are read.

  Raises:
    ConfigError: If the task or the split does not exist.
  """
  for kind, value, choices in (
    ('task', name, TASKS),
    ('split', split, ('train', 'dev')),
  ):
    if value not in choices:
      raise errors.ConfigError(
        f'The GLUE benchmark has no {kind} with the requested name',
        got=value,
        expected='one of ' + ', '.join(choices),
        fix=name_suggestions.did_you_mean(value, choices),
      )
  folder, dev, columns = TASKS[name]
  file = 'train' if split == 'train' else dev
  return example_source.FileDataset(
    format='rated_pairs' if name == 'stsb' else 'tsv',
    files={'en': f'{directory}/{folder}/{file}.tsv'},
    options={'columns': columns, 'has_header': name != 'cola'},
    max_examples=max_examples,
  )

"""Cells of tables that say more than a number: interval, mark, link."""

import dataclasses
import os
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence

from xlflax.evaluation.reports import leaderboard, score_table

SIGNIFICANT = 0.05
_SCHEMES = ('http', 'https', 'gs', 's3', 'az')  # that a page may link to
BETTER, WORSE = '▲', '▼'
# (model, task, language) -> what a page shows of that score.
Details = Mapping[tuple[str, str, str], 'Detail']


@dataclasses.dataclass(frozen=True)
class Cell:
  """A displayed value of a table; `page.html.j2` renders it.

  Attributes:
    text: Number or text.
    note: Note in small print after the text.
    link: URL of a file, or ''.
    title: Tooltip, or ''.
  """

  text: str
  note: str = ''
  link: str = ''
  title: str = ''

  def __str__(self) -> str:
    return ' '.join(filter(None, (self.text, self.note)))


@dataclasses.dataclass(frozen=True)
class Detail:
  """What stands beside a score.

  Attributes:
    interval: 95 % of it; None where single examples are not known.
    mark: whether it differs from the baseline's: `BETTER`, `WORSE` or ''.
    link: address of its predictions, seen from the page; '' for none.
  """

  interval: leaderboard.Interval | None = None
  mark: str = ''
  link: str = ''

  def cell(self, text: str) -> Cell:
    """The score's cell."""
    reach, title = '', ''
    if self.interval is not None:
      reach = f'± {self.interval.reach:.1f}'
      title = f'95 %: {self.interval.low:.1f} … {self.interval.high:.1f}'
    return Cell(
      text, ' '.join(filter(None, (reach, self.mark))), self.link, title
    )


def details(
  tables: leaderboard.Tables,
  comparisons: Sequence[leaderboard.Comparison],
  *,
  page: pathlib.Path,
  source: str,
  samples: int,
  seed: int,
) -> dict[tuple[str, str, str], Detail]:
  """What stands beside each score, mean and gap of every model.

  Args:
    tables: of the models.
    comparisons: with the baseline.
    page: folder of the page, from which predictions are linked.
    source: the language that models were fine-tuned in.
    samples: of the bootstrap.
    seed: of the bootstrap.
  """
  marks = _marks(comparisons)
  found = {}
  for table in tables:
    known = leaderboard.intervals(
      table, source=source, samples=samples, seed=seed
    )
    names = {
      (task, language): None
      for task in table.tasks
      for language in table.task_scores(task)
    }
    for task, language in names | known:
      found[table.model, task, language] = Detail(
        known.get((task, language)),
        marks.get((table.model, task, language), ''),
        link(table.predictions(task, language), page),
      )
  return found


def link(target: str, page: pathlib.Path) -> str:
  """The address of a local file, seen from a folder; of another as it is."""
  scheme, separator, _ = target.partition('://')
  known = scheme in _SCHEMES
  if not target or known or ('://' in str(page) and not separator):
    return target
  return urllib.parse.quote(os.path.relpath(target, page))


def _marks(comparisons) -> dict[tuple[str, str, str], str]:
  """Marks of what differs in every metric of a task, in one direction."""
  kinds: dict[tuple[str, str, str], set[str]] = {}
  for one in comparisons:
    different = one.adjusted_p is not None and one.adjusted_p < SIGNIFICANT
    mark = (BETTER if one.better else WORSE) if different else ''
    kinds.setdefault((one.model, one.task, one.language), set()).add(mark)
  return {
    key: next(iter(several))
    for key, several in kinds.items()
    if len(several) == 1
  }


def cost_row(table: score_table.ScoreTable) -> list[str | Cell]:
  """A model's row of the table of costs."""
  cost = table.cost
  if cost is None:
    return [table.model, '–', '–', '–', '–', '–']
  return [
    table.model,
    f'{cost.parameters / 1e6:.1f}',
    f'{cost.training_seconds / 3600:.2f}',
    f'{cost.cpu_seconds:.0f}',
    f'{cost.device_seconds:.0f}',
    cost.device,
  ]


COST_HEAD = [
  'model',
  'parameters (millions)',
  'training (hours)',
  'CPU seconds',
  'accelerator seconds',
  'device',
]

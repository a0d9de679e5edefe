"""Table cells with details: confidence interval, significance mark and link."""

import dataclasses
import os
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence

from xlflax.evaluation import score_format
from xlflax.evaluation.reports import leaderboard, score_table

SIGNIFICANT = 0.05
_SCHEMES = ('http', 'https', 'gs', 's3', 'az')  # URL schemes of links
BETTER, WORSE = '▲', '▼'
# Details of a score by model, task and language.
Details = Mapping[tuple[str, str, str], 'Detail']


@dataclasses.dataclass(frozen=True)
class Cell:
  """Table cell that the template `page.html.j2` renders.

  Attributes:
    text: Formatted number, or text.
    note: Additional text, which is displayed in small print after `text`.
    link: URL to which the cell links, or ''.
    title: Tooltip text, or ''.
  """

  text: str
  note: str = ''
  link: str = ''
  title: str = ''

  def __str__(self) -> str:
    return ' '.join(filter(None, (self.text, self.note)))


@dataclasses.dataclass(frozen=True)
class Detail:
  """Details shown next to a score, such as its confidence interval.

  Attributes:
    interval: 95 % confidence interval. None if per-example scores are not
      available.
    mark: `BETTER` or `WORSE` if the score differs significantly from that of
      the baseline, otherwise ''.
    link: URL of the file of predictions, relative to the page, or ''.
  """

  interval: leaderboard.Interval | None = None
  mark: str = ''
  link: str = ''

  def cell(self, text: str) -> Cell:
    """Returns a score's cell with interval, significance mark and link."""
    half_width, title = '', ''
    if self.interval is not None:
      width, low, high = (
        score_format.format_score(value, decimals=1)
        for value in (
          self.interval.half_width,
          self.interval.low,
          self.interval.high,
        )
      )
      half_width = f'± {width}'
      title = f'95 %: {low} … {high}'
    note = ' '.join(filter(None, (half_width, self.mark)))
    return Cell(text, note, self.link, title)


def collect_details(
  tables: leaderboard.Tables,
  comparisons: Sequence[leaderboard.Comparison],
  *,
  page: pathlib.Path,
  source: str,
  samples: int,
  seed: int,
) -> dict[tuple[str, str, str], Detail]:
  """Returns the details to show next to each score, such as its interval.

  The details are the confidence interval, the significance mark and the link to
  the predictions.

  Args:
    tables: Score table of each model.
    comparisons: Comparisons of the models with the baseline.
    page: Folder of the HTML page. Links to predictions are relative to it.
    source: Language of the fine-tuning data.
    samples: Number of bootstrap samples to draw.
    seed: Random seed for bootstrap resampling.

  Returns:
    Details by model, task and language.
  """
  marks = _significance_marks(comparisons)
  details = {}
  for table in tables:
    intervals = leaderboard.score_intervals(
      table, source=source, samples=samples, seed=seed
    )
    scores = {
      (task, language): None
      for task in table.tasks
      for language in table.task_scores(task)
    }
    for task, language in scores | intervals:
      details[table.model, task, language] = Detail(
        intervals.get((task, language)),
        marks.get((table.model, task, language), ''),
        resolve_link(table.predictions(task, language), page),
      )
  return details


def resolve_link(target: str, page: pathlib.Path) -> str:
  """Returns the URL for a link from a page to a file.

  Args:
    target: Path or URL of the file to link to, or ''.
    page: Folder of the HTML page. A path is converted to a path relative to
      this folder, unless the page is in a bucket and the target is a local
      path.
  """
  scheme, separator, _ = target.partition('://')
  is_url = scheme in _SCHEMES
  if not target or is_url or ('://' in str(page) and not separator):
    return target
  return urllib.parse.quote(os.path.relpath(target, page))


def _significance_marks(
  comparisons: Sequence[leaderboard.Comparison],
) -> dict[tuple[str, str, str], str]:
  """Returns the marks of scores by model, task and language.

  A score is marked if it differs significantly from the baseline's score in
  every metric of the task and in the same direction.
  """
  marks: dict[tuple[str, str, str], set[str]] = {}
  for comparison in comparisons:
    mark = ''
    adjusted_p = comparison.adjusted_p
    if adjusted_p is not None and adjusted_p < SIGNIFICANT:
      mark = BETTER if comparison.better else WORSE
    key = (comparison.model, comparison.task, comparison.language)
    marks.setdefault(key, set()).add(mark)
  return {
    key: next(iter(metric_marks))
    for key, metric_marks in marks.items()
    if len(metric_marks) == 1
  }


def cost_row(table: score_table.ScoreTable) -> list[str | Cell]:
  """Returns a model's row in the cost table."""
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

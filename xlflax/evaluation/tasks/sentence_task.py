"""The base of tasks on sentence vectors."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.data.supervised.sources import task_source
from xlflax.evaluation import eval_task, hidden_states
from xlflax.evaluation.metrics.corpus_statistics import Statistics
from xlflax.evaluation.sentence_embedding import Centre, SentenceEncoding
from xlflax.evaluation.tasks import head_task
from xlflax.objectives.model_calls import Pooling
from xlflax.similarity import vector_normalization
from xlflax.utils import validation

_Score = Callable[[Any, eval_task.EvalResult, list[str]], dict[str, Statistics]]
ENOUGH = 50  # sentences whose mean says more about a language than about them


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceTask(eval_task.EvalTask):
  """Base of tasks that compare sentences by one vector each.

  The vector is the model's own (`SentenceEncoding`). What a task says
  otherwise is part of its result's identity, and a note tells of it.

  Attributes:
    pooling: how the states of a sentence become one vector; given, dense
      layers and normalisation of the model's own vector are left out.
    layer: whose states are reported, without these too; 0 is the embedding
      output, -1 the last layer.
    max_length: tokens a sentence, at most.
    prompts: name -> text before a query, a document or, named `default`, any
      other text.
    centre: what is taken away from the vectors of a test set; None: what the
      model's own definition says, else `CENTRE`.
    CENTRE: where nothing else is said.
  """

  CENTRE: ClassVar[Centre] = Centre.NONE

  pooling: Pooling | None = None
  layer: validation.LayerIndex | None = None
  max_length: validation.PositiveInt | None = None
  prompts: Mapping[str, str] | None = None
  centre: Centre | None = None

  def encoding(
    self, subject: eval_task.Subject, notes: list[str] | None = None
  ) -> SentenceEncoding:
    """What the vectors are; `notes` gets it, and what the task changes."""
    model_encoding = subject.sentence
    task_encoding = model_encoding.changed(
      pooling=self.pooling,
      layer=self.layer,
      max_length=self.max_length,
      prompts=self.prompts,
      default_prompt='default' if self.prompts else None,
      centre=self.centre,
    )
    task_encoding = dataclasses.replace(
      task_encoding, centre=task_encoding.centre or self.CENTRE
    )
    if notes is not None:
      notes.append(f'vectors are {task_encoding}')
      if str(task_encoding) != str(model_encoding):
        notes.append(f"the task says so; the model's own are {model_encoding}")
    return task_encoding

  def layer_of(self, subject: eval_task.Subject) -> int:
    """The layer that is reported, from 0; of several the last."""
    return hidden_states.layer_index(
      subject, self.encoding(subject).layers[-1], where=self.name
    )

  def language_id(
    self, subject: eval_task.Subject, code: str, notes: list[str]
  ) -> int:
    """The number of a language; see `language_codes.language_id`."""
    return language_codes.language_id(
      subject.vocabulary, code, notes, required=subject.needs_languages
    )

  def scored(
    self,
    parts: Iterable[Any],
    score: _Score,
    *,
    name: Callable[[Any], str] = str,
    notes: Sequence[str] = (),
  ) -> eval_task.EvalResult:
    """The result of what `score` finds in each part; those that fail are listed.

    Args:
      parts: of a source.
      score: function of a part, of the result and of notes to add to; returns
        metric -> statistics.
      name: what a part is called.
      notes: that come first.
    """
    failures, all_notes = eval_task.Failures(self.name), list(notes)
    result = eval_task.EvalResult(metrics={})
    for part in parts:
      with failures.guard(name(part)):
        statistics = score(part, result, all_notes)
        for metric, statistic in statistics.items():
          result.metrics[f'{metric}/{name(part)}'] = statistic.value
        if statistics:
          result.files.update(
            eval_task.statistics_files(name(part), statistics)
          )
    result.metrics.update(head_task.mean_metrics(result.metrics))
    return dataclasses.replace(
      result,
      notes=tuple(dict.fromkeys(all_notes)),
      failures=failures.collected(),
    )

  def vectors(
    self,
    subject: eval_task.Subject,
    texts: Sequence[str],
    languages: Sequence[str],
    notes: list[str],
    prompts: Sequence[str] = (),
  ) -> np.ndarray:
    """One vector for each of N texts, [N, D].

    Args:
      subject: what is evaluated.
      texts: N of them.
      languages: the code of each.
      notes: gets what is said of languages and of texts that were cut.
      prompts: names, such as `sentence_embedding.QUERY`; the first that there
        is comes before each text.
    """
    encoding = self.encoding(subject, notes)
    sentence_result = hidden_states.sentence_vectors(
      subject,
      texts,
      self._ids(subject, languages, notes),
      encoding,
      prompt=encoding.prompt(*prompts),
    )
    if sentence_result.truncated:
      notes.append(
        f'{sentence_result.truncated} of {len(texts)} texts were cut'
      )
    return sentence_result.vectors

  def _ids(self, subject, languages, notes) -> list[int]:
    codes = dict.fromkeys(languages)
    ids = {code: self.language_id(subject, code, notes) for code in codes}
    return [ids[code] for code in languages]

  def by_layer(
    self,
    subject: eval_task.Subject,
    texts: Sequence[str],
    languages: Sequence[str],
    notes: list[str],
    name: str,
  ) -> list[np.ndarray]:
    """Pooled states of every layer, [N, H]; the vectors for the reported one.

    Args:
      subject: what is evaluated.
      texts: N of them.
      languages: the code of each.
      notes: see `vectors`.
      name: of the texts, for notes.
    """
    encoding = self.encoding(subject, notes)
    layers, truncated = hidden_states.layer_vectors(
      subject, texts, self._ids(subject, languages, notes), encoding
    )
    if truncated:
      notes.append(f'{truncated} sentences of {name} were cut')
    layer_vectors = list(layers)
    layer_vectors[self.layer_of(subject)] = encoding.apply(
      subject.params.get('heads', {}), layers[list(encoding.layers)].mean(0)
    )
    return layer_vectors

  def sides(
    self,
    subject: eval_task.Subject,
    languages: Sequence[Sequence[str]],
    texts: Sequence[Sequence[str]],
    notes: list[str],
    prompts: Sequence[Sequence[str]] = ((), ()),
  ) -> list[np.ndarray]:
    """Vectors of each side of a test set, centred as `encoding` says.

    Args:
      subject: what is evaluated.
      languages: the code of each text of each side.
      texts: of each side.
      notes: see `vectors`; gets whether means were taken away.
      prompts: of each side; see `vectors`.
    """
    return self.centred(
      subject,
      [
        (self.vectors(subject, side, codes, notes, names), codes)
        for side, codes, names in zip(texts, languages, prompts, strict=False)
      ],
      notes,
    )

  def centred(
    self,
    subject: eval_task.Subject,
    sides: Sequence[tuple[np.ndarray, Sequence[str]]],
    notes: list[str],
  ) -> list[np.ndarray]:
    """The sides of a test set as `encoding` says: all of them, or none.

    Args:
      subject: whose vectors they are.
      sides: vectors [N, H] of texts, and the language of each text.
      notes: gets what was done.
    """
    vectors = [side_vectors for side_vectors, _ in sides]
    centre = self.encoding(subject).centre
    counts = collections.Counter(
      (side, code) for side, (_, codes) in enumerate(sides) for code in codes
    )
    if centre is Centre.NONE or not counts:
      return vectors
    (_, code), fewest = counts.most_common()[-1]
    if centre is Centre.AUTO and fewest < ENOUGH:
      notes.append(
        f'vectors are compared as they are: {fewest} sentences of {code} are '
        f'fewer than {ENOUGH}, too few for a mean to be taken away'
      )
      return vectors
    notes.append('the mean of its language is taken away from each vector')
    return [vector_normalization.center_by_group(*side) for side in sides]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectionTask(SentenceTask):
  """Base of tasks that look for translations among two collections."""

  CENTRE = Centre.AUTO

  @classmethod
  def source_factory(cls, name: str) -> Callable[..., Any]:
    """Returns a function that selects the collections of SeqIO tasks."""

    def select_collections(
      mixture: str, split: str = 'test'
    ) -> task_source.TaskMined:
      return task_source.TaskMined(mixture=mixture, split=split)

    return select_collections

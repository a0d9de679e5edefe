"""Base classes for tasks on sentence vectors."""

import collections
import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.data.supervised.sources import task_source
from xlflax.evaluation import eval_task, hidden_states
from xlflax.evaluation.metrics.example_statistics import Statistics
from xlflax.evaluation.sentence_embedding import Centering, SentenceEmbedding
from xlflax.evaluation.tasks import head_task, truncation_notes
from xlflax.objectives.model_calls import Pooling
from xlflax.similarity import vector_normalization
from xlflax.utils import errors, logs, plurals, validation

_Score = Callable[[Any, eval_task.EvalResult, list[str]], dict[str, Statistics]]
# Minimum number of sentences whose mean describes their language rather than
# their content.
MIN_SENTENCES = 50


# Standard deviation of the vectors, relative to their norm, below which it
# consists of rounding errors.
_MIN_SPREAD = 1e-5
# Note on a result whose sentence vectors are almost equal.
_COLLAPSED = (
  'the vectors of all sentences are almost equal, so the scores depend on '
  'rounding errors. The encoder has probably collapsed, for example because its '
  'learning rate was too high'
)


def are_collapsed(vectors: np.ndarray) -> bool:
  """Returns whether all vectors are almost equal.

  Args:
    vectors: Sentence vectors of shape [N, D]. The result is False if N is less
      than 2, or if all vectors are 0.
  """
  if len(vectors) < 2:
    return False
  spread = np.linalg.norm(np.std(vectors, axis=0, dtype=np.float64))
  return bool(spread < _MIN_SPREAD * np.linalg.norm(vectors[0]))


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceTask(eval_task.EvalTask):
  """Base class for tasks that represent each sentence by one vector.

  The model's `SentenceEmbedding` defines the vector, unless the task overrides
  parts of the definition. The overrides are part of the identity of a result,
  and a note lists them.

  Attributes:
    pooling: Method that reduces hidden states to one vector. If set, the dense
      layers and normalization that the model defines are left out. If None, the
      model's own pooling is used.
    layer: Layer whose hidden states are pooled for the reported scores. 0 is
      the embedding output and -1 the last layer. If it is not the layer that
      the model defines, dense layers and normalization are left out. If None,
      the model's own layer is used.
    max_length: Maximum number of tokens per sentence. If None, the limit that
      the model defines for its sentence vectors.
    prompts: Prompts by name. A prompt is prepended to a query, to a document
      or, under the name `default`, to any other text. If None, the model's own
      prompts are used.
    centering: Mean to subtract from the vectors of a test set. If None, the
      model's own setting is used, or `DEFAULT_CENTERING` if the model does not
      define one.
    DEFAULT_CENTERING: Default value of `centering` for the task class.
  """

  DEFAULT_CENTERING: ClassVar[Centering] = Centering.NONE

  pooling: Pooling | None = None
  layer: validation.LayerIndex | None = None
  max_length: validation.PositiveInt | None = None
  prompts: Mapping[str, str] | None = None
  centering: Centering | None = None

  def encoding(
    self, eval_model: eval_task.EvalModel, notes: list[str] | None = None
  ) -> SentenceEmbedding:
    """Returns the model's sentence-vector settings with the task's overrides.

    Args:
      eval_model: Model with its own sentence-vector definition.
      notes: List to which the definition and the task's overrides are appended.
    """
    model_encoding = eval_model.sentence
    task_encoding = model_encoding.changed(
      pooling=self.pooling,
      layer=self.layer,
      max_length=self.max_length,
      prompts=self.prompts,
      default_prompt='default' if self.prompts else None,
      centering=self.centering,
    )
    task_encoding = dataclasses.replace(
      task_encoding, centering=task_encoding.centering or self.DEFAULT_CENTERING
    )
    if notes is not None:
      notes.append(f'vectors are {task_encoding}')
      if str(task_encoding) != str(model_encoding):
        notes.append(
          "the task overrides the model's own vectors, which are "
          f'{model_encoding}'
        )
    return task_encoding

  def layer_of(self, eval_model: eval_task.EvalModel) -> int:
    """Returns the zero-based index of the layer whose scores are reported.

    If the vectors are averaged over several layers, the last of these layers is
    returned.
    """
    return self.scored_layers(eval_model)[-1]

  def scored_layers(self, eval_model: eval_task.EvalModel) -> tuple[int, ...]:
    return tuple(
      hidden_states.layer_index(eval_model, layer, where=self.name)
      for layer in self.encoding(eval_model).layers
    )

  def language_id(
    self, eval_model: eval_task.EvalModel, code: str, notes: list[str]
  ) -> int:
    """Returns a language's id (see `language_codes.language_id`)."""
    return language_codes.language_id(
      eval_model.vocabulary, code, notes, required=eval_model.needs_languages
    )

  def score_parts(
    self,
    parts: Iterable[Any],
    score: _Score,
    *,
    name: Callable[[Any], str] = str,
    notes: Sequence[str] = (),
  ) -> eval_task.EvalResult:
    """Scores each language or language pair, and records those that failed.

    Args:
      parts: Languages or language pairs of the source.
      score: Function that returns per-example statistics by metric. It is
        called with a language or pair, the result and the list of notes, and
        may extend the result and the notes.
      name: Function that maps a language or language pair to its name in
        metrics.
      notes: Notes that precede the notes of `score` in the result.
    """
    failures = eval_task.Failures(self.name)
    all_notes = list(notes)
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
    eval_model: eval_task.EvalModel,
    texts: Sequence[str],
    languages: Sequence[str],
    notes: list[str],
    prompts: Sequence[str] = (),
  ) -> np.ndarray:
    """Returns the vectors of N texts, of shape [N, D].

    Args:
      eval_model: Model with restored parameters.
      texts: N texts.
      languages: Language code for each text.
      notes: List to which notes on vectors, languages and truncated texts are
        appended.
      prompts: Names of prompts, such as `sentence_embedding.QUERY`. The first
        prompt that is defined is prepended to each text.

    Raises:
      ConfigError: If `languages` does not contain one code for each text.
    """
    self._check_languages(languages, texts, 'text')
    encoding = self.encoding(eval_model, notes)
    eval_task.record_encoded_texts(tuple(texts), str(encoding), tuple(prompts))
    sentence_result = hidden_states.sentence_vectors(
      eval_model,
      texts,
      self._language_ids(eval_model, languages, notes),
      encoding,
      prompt=encoding.prompt(*prompts),
    )
    if sentence_result.truncated:
      notes.append(
        f'{sentence_result.truncated} of {len(texts)} texts were truncated'
      )
    self._note_collapse(sentence_result.vectors, notes)
    return sentence_result.vectors

  def _check_languages(
    self, languages: Sequence[str], items: Sequence[Any] | np.ndarray, noun: str
  ) -> None:
    """Raises ConfigError unless there is one language code for each item.

    Args:
      languages: Language codes.
      items: Texts or vectors.
      noun: 'text' or 'vector'.
    """
    is_text = isinstance(languages, str)
    if not is_text and len(languages) == len(items):
      return
    argument = 'languages' if noun == 'text' else 'sides'
    num_items = plurals.format_count(len(items), noun)
    given = (
      f'the text {languages!r}'
      if is_text
      else plurals.format_count(len(languages), 'language code')
    )
    code = languages if is_text else next(iter(languages), 'en')
    raise errors.ConfigError(
      f'`{argument}` must contain one language code for each {noun}',
      got=f'{given} for {num_items}',
      expected=plurals.format_count(len(items), 'language code'),
      where=self.name,
      fix=f'Pass one language code for each {noun}, such as '
      f'[{code!r}] * len({noun}s).',
    )

  def _language_ids(self, eval_model, languages, notes) -> list[int]:
    """Returns the language id of each text."""
    codes = dict.fromkeys(languages)
    ids = {code: self.language_id(eval_model, code, notes) for code in codes}
    return [ids[code] for code in languages]

  def layer_vectors(
    self,
    eval_model: eval_task.EvalModel,
    texts: Sequence[str],
    languages: Sequence[str],
    notes: list[str],
    name: str,
  ) -> list[np.ndarray]:
    """Returns the pooled hidden states of every layer, each of shape [N, H].

    For the reported layer, the list contains the model's sentence vectors
    instead of the pooled hidden states.

    Args:
      eval_model: Model with restored parameters.
      texts: N texts.
      languages: Language code for each text.
      notes: List to which notes are appended (see `vectors`).
      name: Name of the texts in notes, such as a language pair.

    Raises:
      ConfigError: If `languages` does not contain one code for each text.
    """
    self._check_languages(languages, texts, 'text')
    encoding = self.encoding(eval_model, notes)
    layers, truncated = hidden_states.layer_vectors(
      eval_model,
      texts,
      self._language_ids(eval_model, languages, notes),
      encoding,
    )
    if truncated:
      notes.append(truncation_notes.format_truncated(truncated, name))
    vectors = list(layers)
    vectors[self.layer_of(eval_model)] = encoding.apply(
      eval_model.params.get('heads', {}), layers[list(encoding.layers)].mean(0)
    )
    self._note_collapse(vectors[self.layer_of(eval_model)], notes)
    return vectors

  def _note_collapse(self, vectors: np.ndarray, notes: list[str]) -> None:
    """Appends a note and logs a warning if all vectors are almost equal."""
    if are_collapsed(vectors) and _COLLAPSED not in notes:
      notes.append(_COLLAPSED)
      logging.warning('%s: %s.', self.name, _COLLAPSED, extra=logs.ONCE)

  def sides(
    self,
    eval_model: eval_task.EvalModel,
    languages: Sequence[Sequence[str]],
    texts: Sequence[Sequence[str]],
    notes: list[str],
    prompts: Sequence[Sequence[str]] = ((), ()),
  ) -> list[np.ndarray]:
    """Returns the centered source and target vectors of a test set.

    Args:
      eval_model: Model with restored parameters.
      languages: Language codes of the texts, for source and target.
      texts: Source texts and target texts.
      notes: List to which notes are appended (see `vectors` and
        `center_vectors`).
      prompts: Names of prompts, for source and target (see `vectors`).

    Raises:
      ConfigError: If there is not one language code for each text.
    """
    return self.center_vectors(
      eval_model,
      [
        (self.vectors(eval_model, side, codes, notes, names), codes)
        for side, codes, names in zip(texts, languages, prompts, strict=False)
      ],
      notes,
    )

  def center_vectors(
    self,
    eval_model: eval_task.EvalModel,
    sides: Sequence[tuple[np.ndarray, Sequence[str]]],
    notes: list[str],
  ) -> list[np.ndarray]:
    """Centers the vectors of a test set as specified by `encoding`.

    Either both the source and the target vectors are centered, or neither.

    Args:
      eval_model: Model with its own sentence-vector definition.
      sides: Source texts and target texts, each as a pair of their vectors, of
        shape [N, H], and their language codes.
      notes: List to which a note on the centering is appended.

    Raises:
      ConfigError: If there is not one language code for each vector.
    """
    for side_vectors, codes in sides:
      self._check_languages(codes, side_vectors, 'vector')
    vectors = [side_vectors for side_vectors, _ in sides]
    centering = self.encoding(eval_model).centering
    counts = collections.Counter(
      (side, code) for side, (_, codes) in enumerate(sides) for code in codes
    )
    if centering is Centering.NONE or not counts:
      return vectors
    (_, code), min_count = counts.most_common()[-1]
    if centering is Centering.AUTO and min_count < MIN_SENTENCES:
      notes.append(
        f'vectors are not centered, because {code} has {min_count} sentences '
        f'and the mean requires {MIN_SENTENCES}'
      )
      return vectors
    notes.append('the mean of its language is subtracted from each vector')
    return [vector_normalization.center_by_group(*side) for side in sides]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectionTask(SentenceTask):
  """Base class for tasks that match translations in two sets of sentences."""

  DEFAULT_CENTERING = Centering.AUTO
  source: Any

  def labeled_parts(self):
    return self.source.languages()

  def missing_parts(self):
    return self.source.missing_languages()

  def count_gold_labels(self, part):
    collections = self.source.load(part)
    num_sentences = len(collections.second)
    return eval_task.LabelCount(
      0 if collections.gold is None else num_sentences, num_sentences
    )

  @classmethod
  def source_factory(cls, name: str) -> Callable[..., Any]:
    """Returns the function that creates a bitext mining source from options."""

    def select_collections(
      mixture: str, split: str = 'test'
    ) -> task_source.SeqioBitextMining:
      return task_source.SeqioBitextMining(mixture=mixture, split=split)

    return select_collections

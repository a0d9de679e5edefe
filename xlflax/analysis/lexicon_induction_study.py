"""Word translation from embeddings, from every layer, and from vector files.

Source: ECS (Wu et al., 2020) section 5.1.1 and figure 4: (a) rows of the
embedding matrix, for words of one piece, beside fastText; (b) means of
contextual states at every layer.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Mapping

from xlflax.analysis import (
  analysis_report,
  corpus_hidden_states,
  lexicon_induction,
  lexicon_induction_report,
  model_refs,
  study_base,
  text_files,
  word_vectors,
)
from xlflax.analysis.lexicon_induction_report import TOP, VECTORS
from xlflax.data.dictionaries import bilingual_dictionary as dictionary_files
from xlflax.evaluation import eval_task, text_sources
from xlflax.similarity import csls
from xlflax.utils import errors, validation

_EXPLANATION = (
  'Precision@k (%) of the nearest words of the other language (CSLS with '
  'K = 10, or cosine), for the words of a test dictionary: as the vectors '
  'are, and after an orthogonal map (Procrustes, with iterative '
  'normalisation) learned from the training dictionary. Embeddings: words '
  'of a single piece. Layers: the mean over a word’s pieces and over all '
  'places where the text has it; layer 0 is the embedding output. Words of '
  'the dictionary that have no vector, or no translation with one, are not '
  'asked for: see the coverage. Precisions of different vocabularies '
  'cannot be compared.'
)
EMBEDDINGS = 'embeddings'
LAYERS = 'layers'

# A dictionary's pairs of words for each pair of languages.
Entries = dict[model_refs.Pair, list[tuple[str, str]]]
Sides = tuple[lexicon_induction.WordVectors, lexicon_induction.WordVectors]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class WordStudy(study_base.SeriesStudy):
  """Word translation of every series for every dictionary.

  Attributes:
    train: 'en-fr' -> file of a dictionary that maps are learned from, one
      entry a line, separated by tabs or spaces (MUSE).
    test: the same, of the words that are asked for.
    text: the text whose words get contextual vectors; None: embeddings only.
    series: the models that are compared.
    vectors: language -> file of word vectors (`.vec`), the baseline.
    layers: that are looked at; None: all.
    max_words: of a language, the most frequent of the text or of the files.
    min_count: words that the text has less often get no vector.
    k: K of CSLS.
    max_length: tokens a sentence, at most.
    directory: where the sums over the text are kept; None: nowhere.
  """

  train: Mapping[str, str]
  test: Mapping[str, str]
  text: text_sources.TextSource | None = None
  series: tuple[model_refs.Series, ...] = ()
  vectors: Mapping[str, str] = dataclasses.field(default_factory=dict)
  layers: tuple[validation.LayerIndex, ...] | None = None
  max_words: validation.PositiveInt = 200_000
  min_count: validation.PositiveInt = 1
  k: validation.PositiveInt = 10
  max_length: validation.PositiveInt | None = 128
  directory: str | None = None

  def __post_init__(self):
    if not self.vectors:
      super().__post_init__()
    if set(self.train) != set(self.test):
      raise errors.ConfigError(
        'Training and test dictionaries are not of the same pairs',
        got=f'{", ".join(self.train)} and {", ".join(self.test)}',
        expected='both for each pair',
      )
    self._check_vectors()

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis; parts that fail are listed in the result."""
    failures = eval_task.Failures('words')
    rows: list[analysis_report.Row] = []
    train, test = (_read(files) for files in (self.train, self.test))
    known = _known(train, test)
    work = _Work(self, models, known)
    for pair in test:
      given = (train[pair], test[pair])
      if all(language in self.vectors for language in pair):
        with failures.guard(f'vectors {"-".join(pair)}'):
          columns = {'series': VECTORS, 'pair': '-'.join(pair), 'step': None}
          rows += self._translate(
            columns | {'representation': VECTORS, 'layer': None},
            work.of_files(pair),
            *given,
          )
      for case in self.cases(pair, models, failures):
        for kind, sides in (
          (EMBEDDINGS, work.of_embeddings),
          (LAYERS, work.of_layers),
        ):
          with failures.guard(f'{case.name}, {kind}'):
            for layer, found in sides(case):
              rows += self._translate(
                case.columns | {'representation': kind, 'layer': layer},
                found,
                *given,
              )
    return analysis_report.Analysis(
      name='words',
      title='Word translation',
      explanation=_EXPLANATION,
      rows=rows,
      pictures=lexicon_induction_report.pictures(rows),
      tables=lexicon_induction_report.tables(rows),
      settings=eval_task.task_settings(self),
      notes=lexicon_induction_report.notes(rows),
      failures=failures.collected(),
    )

  def _check_vectors(self) -> None:
    pairs = [name.partition('-')[::2] for name in self.test]
    used = {
      language
      for pair in pairs
      for language in pair
      if all(one in self.vectors for one in pair)
    }
    if set(self.vectors) - used:
      raise errors.ConfigError(
        'Word vectors of a language have no counterpart',
        got=', '.join(sorted(set(self.vectors) - used)),
        where='--vec',
        expected='files of both languages of a dictionary, of '
        + ', '.join(self.test),
      )

  def _translate(
    self, columns: analysis_report.Row, sides: Sides, train, test
  ) -> list[analysis_report.Row]:
    rows = []
    same_size = len({side.vectors.shape[1] for side in sides}) == 1
    for mapping in lexicon_induction.Mapping:
      if mapping is lexicon_induction.Mapping.NONE and not same_size:
        continue
      found = lexicon_induction.translate(
        *sides, test=test, train=train, mapping=mapping, top=TOP, k=self.k
      )
      rows += [
        columns
        | {
          'mapping': mapping.value,
          'score': score.value,
          **{f'precision@{n}': found.precision[score, n] for n in TOP},
          'queries': found.queries,
          'coverage': found.coverage,
          'learned_from': found.learned_from,
          'source_words': len(sides[0].words),
          'target_words': len(sides[1].words),
        }
        for score in csls.Score
      ]
    return rows


class _Work:
  """Word vectors, each made once."""

  def __init__(
    self,
    settings: WordStudy,
    models: model_refs.Models,
    known: Mapping[str, set[str]],
  ):
    self._settings = settings
    self._models = models
    self._known = known
    self._digests: dict[str, text_files.Digest] = {}
    self._words: dict[str, tuple[str, ...]] = {}
    self._means: dict[tuple, word_vectors.WordMeans] = {}
    self._files: dict[str, lexicon_induction.WordVectors] = {}

  def of_files(self, pair: model_refs.Pair) -> Sides:
    for language in pair:
      if language not in self._files:
        self._files[language] = lexicon_induction.read_vectors(
          self._settings.vectors[language],
          max_words=self._settings.max_words,
          language=language,
        )
    return self._files[pair[0]], self._files[pair[1]]

  def of_embeddings(
    self, case: study_base.Case
  ) -> Iterator[tuple[int | None, Sides]]:
    first, second = (
      word_vectors.embedding_vectors(
        self._models.subject(ref), self._vocabulary(language), language
      )
      for ref, language in _sides(case)
    )
    yield None, (first, second)

  def of_layers(
    self, case: study_base.Case
  ) -> Iterator[tuple[int | None, Sides]]:
    """Nothing without text."""
    if self._settings.text is None:
      return
    depth = min(self._models.num_layers(ref) for ref, _ in _sides(case))
    layers = study_base.chosen_layers(self._settings.layers, depth)
    means = [self._mean_states(*side) for side in _sides(case)]
    for layer in layers:
      first, second = (
        one.vectors(layer, least=self._settings.min_count) for one in means
      )
      yield layer, (first, second)

  def _mean_states(
    self, ref: model_refs.ModelRef, language: str
  ) -> word_vectors.WordMeans:
    key = (self._models.resolve(ref), language)
    if key not in self._means:
      if len(self._means) > 1:  # the sums are large
        self._means.pop(next(iter(self._means)))
      self._means[key] = corpus_hidden_states.mean_word_states(
        self._models.subject(ref),
        self._lines(language),
        language,
        self._vocabulary(language),
        max_length=self._settings.max_length,
        store=self._store(ref, language),
        total=self._digest(language).size,
      )
    return self._means[key]

  def _store(
    self, ref: model_refs.ModelRef, language: str
  ) -> word_vectors.Store | None:
    if self._settings.directory is None:
      return None
    about = self._models.identity(ref) | {
      'language': language,
      'max_length': self._settings.max_length,
      'text': self._digest(language).name,
      'words': eval_task.settings_hash(list(self._vocabulary(language))),
    }
    return word_vectors.Store(
      pathlib.Path(self._settings.directory)
      / f'words.{eval_task.settings_hash(about)}.npz',
      eval_task.settings_hash(about),
      about | {'run': str(ref)},
    )

  def _vocabulary(self, language: str) -> tuple[str, ...]:
    """The words of the text; without one those of the dictionaries."""
    if language not in self._words:
      known = sorted(self._known[language])
      self._words[language] = (
        tuple(known)
        if self._settings.text is None
        else word_vectors.frequent_words(
          self._lines(language),
          language,
          known,
          max_words=self._settings.max_words,
        )
      )
    return self._words[language]

  def _lines(self, language: str) -> Iterable[str]:
    assert self._settings.text is not None
    return text_files.lines_of(self._settings.text, language)

  def _digest(self, language: str) -> text_files.Digest:
    if language not in self._digests:
      self._digests[language] = text_files.digest(self._lines(language))
    return self._digests[language]


def _sides(case: study_base.Case):
  return tuple(zip((case.first, case.second), case.pair, strict=True))


def _known(*entries: Entries) -> dict[str, set[str]]:
  """language -> its words in dictionaries."""
  known: dict[str, set[str]] = {}
  for one in entries:
    for pair, words in one.items():
      for place, language in enumerate(pair):
        known.setdefault(language, set()).update(
          entry[place] for entry in words
        )
  return known


def _read(files: Mapping[str, str]) -> Entries:
  entries: Entries = {}
  for name, path in files.items():
    first, dash, second = name.partition('-')
    if not dash or not pathlib.Path(path).is_file():
      raise errors.CorpusError(
        'There is no such dictionary',
        got=f'{name}={path}',
        expected='two codes and a file, such as en-fr=en-fr.txt',
      )
    with open(path, 'rb') as stream:
      tabs = b'\t' in stream.readline()
    dictionary = dictionary_files.Dictionary.read(
      path, languages=(first, second), format='tsv' if tabs else 'muse'
    )
    entries[first, second] = [
      (one.word, one.translation) for one in dictionary.entries
    ]
  return entries

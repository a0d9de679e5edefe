"""Lexicon induction from embeddings, hidden states and word-vector files.

Source: ECS (Wu et al., 2020) section 5.1.1 and figure 4: (a) rows of the
embedding table for words of a single token, compared with fastText, and (b)
means of contextual states at every layer.
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
from xlflax.data.dictionaries import bilingual_dictionary
from xlflax.evaluation import eval_task, text_sources
from xlflax.similarity import csls
from xlflax.utils import errors, validation

_EXPLANATION = (
  'Precision@k (%) of the nearest words in the target language (CSLS with '
  'K = 10, or cosine) for the words of a test dictionary: without a map, and '
  'after an orthogonal map (Procrustes with iterative normalization) learned '
  'from the training dictionary. Embeddings cover words of a single token. The '
  'vector of a word at a layer is the mean over its tokens and over all of its '
  'occurrences in the text. Layer 0 is the embedding output. Words of the '
  'dictionary without a vector, or without a translation that has a vector, '
  'are omitted, which the coverage shows. Precisions of different '
  'vocabularies are not comparable.'
)
EMBEDDINGS = 'embeddings'
LAYERS = 'layers'
RESTRICTED_VECTORS = 'vectors of the same words'

# Word pairs of a dictionary by language pair.
Entries = dict[model_refs.Pair, list[tuple[str, str]]]
Sides = tuple[lexicon_induction.WordVectors, lexicon_induction.WordVectors]


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class LexiconInductionStudy(study_base.SeriesStudy):
  """Analysis of lexicon induction with word vectors from several models.

  Attributes:
    train: Map from language pair, such as 'en-fr', to the dictionary file from
      which its map is learned. Each line of the file contains a word and its
      translation, separated by tabs or spaces (MUSE).
    test: Map from language pair to its test dictionary file, in the format of
      `train`.
    text: Source of the text from which contextual word vectors are computed. If
      None, only embeddings are evaluated.
    series: Models to compare. Each series names one model, or one model for
      each language of a pair.
    vectors: Map from language to the word-vector file (`.vec`) that serves as
      the baseline.
    restrict_vectors: Whether to also evaluate the baseline on a subset of
      words: for each model, the words that are single tokens of this model
      (ECS, section 5.1.1). The baseline and the embeddings then cover the same
      words.
    layers: Indices of the layers to analyze. If None, all layers are analyzed.
    max_words: Maximum number of words per language. The most frequent words of
      the text or of the word-vector files are used.
    min_count: Minimum number of times that a word must occur in the text to get
      a vector.
    k: Number of neighbors K in the definition of CSLS.
    max_length: Maximum number of tokens per sentence.
    directory: Directory in which each word's sum of hidden states over the text
      is cached. If None, the sums are not stored.
  """

  train: Mapping[str, str]
  test: Mapping[str, str]
  text: text_sources.TextSource | None = None
  series: tuple[model_refs.ModelSeries, ...] = ()
  vectors: Mapping[str, str] = dataclasses.field(default_factory=dict)
  restrict_vectors: bool = False
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
      train_pairs = ', '.join(self.train) or 'no pair'
      test_pairs = ', '.join(self.test) or 'no pair'
      raise errors.ConfigError(
        'The training and test dictionaries must be for the same language '
        f'pairs, but the training dictionaries are for {train_pairs} and the '
        f'test dictionaries are for {test_pairs}'
      )
    self._check_vectors()

  def run(self, models: model_refs.Models) -> analysis_report.Analysis:
    """Runs the analysis and records the language pairs that failed."""
    failures = eval_task.Failures('words')
    rows: list[analysis_report.Row] = []
    train = _read_dictionaries(self.train)
    test = _read_dictionaries(self.test)
    cache = _VectorCache(self, models, _dictionary_words(train, test))
    for pair in test:
      dictionaries = (train[pair], test[pair])
      if all(language in self.vectors for language in pair):
        with failures.guard(f'vectors {"-".join(pair)}'):
          columns = {'series': VECTORS, 'pair': '-'.join(pair), 'step': None}
          rows += self._translate(
            columns | {'representation': VECTORS, 'layer': None},
            cache.file_vectors(pair),
            *dictionaries,
          )
      for case in self.cases(pair, models, failures):
        representations = {
          EMBEDDINGS: cache.embeddings,
          LAYERS: cache.layer_means,
        }
        if self.restrict_vectors and all(code in self.vectors for code in pair):
          representations[RESTRICTED_VECTORS] = cache.restricted_file_vectors
        for representation, load_vectors in representations.items():
          with failures.guard(f'{case.name}, {representation}'):
            for layer, sides in load_vectors(case):
              rows += self._translate(
                case.columns
                | {'representation': representation, 'layer': layer},
                sides,
                *dictionaries,
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
    """Checks that every word-vector file is used with some dictionary."""
    pairs = [name.partition('-')[::2] for name in self.test]
    used_languages = {
      language
      for pair in pairs
      for language in pair
      if all(code in self.vectors for code in pair)
    }
    unused_languages = set(self.vectors) - used_languages
    if unused_languages:
      raise errors.ConfigError(
        'Each language given with --vec must be in the language pair of a '
        'dictionary given with --test. The other language of this pair must '
        'also be given with --vec',
        got=', '.join(sorted(unused_languages)),
        expected=', '.join(self.test),
      )

  def _translate(
    self, columns: analysis_report.Row, sides: Sides, train, test
  ) -> list[analysis_report.Row]:
    """Returns a result row for each type of map and of similarity score."""
    rows = []
    has_same_size = len({side.vectors.shape[1] for side in sides}) == 1
    for mapping in lexicon_induction.Mapping:
      if mapping is lexicon_induction.Mapping.NONE and not has_same_size:
        continue
      result = lexicon_induction.translate(
        *sides, test=test, train=train, mapping=mapping, top=TOP, k=self.k
      )
      rows += [
        columns
        | {
          'mapping': mapping.value,
          'score': score.value,
          **{f'precision@{n}': result.precision[score, n] for n in TOP},
          'queries': result.queries,
          'coverage': result.coverage,
          'learned_from': result.learned_from,
          'source_words': len(sides[0].words),
          'target_words': len(sides[1].words),
        }
        for score in csls.Score
      ]
    return rows


class _VectorCache:
  """Cache of the word vectors of an analysis."""

  def __init__(
    self,
    settings: LexiconInductionStudy,
    models: model_refs.Models,
    dictionary_words: Mapping[str, set[str]],
  ):
    self._settings = settings
    self._models = models
    self._dictionary_words = dictionary_words
    self._digests: dict[str, text_files.Digest] = {}
    self._words: dict[str, tuple[str, ...]] = {}
    self._means: dict[tuple, word_vectors.WordMeans] = {}
    self._files: dict[str, lexicon_induction.WordVectors] = {}

  def file_vectors(self, pair: model_refs.Pair) -> Sides:
    """Returns both languages' word vectors from word-vector files."""
    for language in pair:
      if language not in self._files:
        self._files[language] = lexicon_induction.read_vectors(
          self._settings.vectors[language],
          max_words=self._settings.max_words,
          language=language,
        )
    return self._files[pair[0]], self._files[pair[1]]

  def embeddings(
    self, case: study_base.Case
  ) -> Iterator[tuple[int | None, Sides]]:
    """Yields both languages' word vectors from embedding tables.

    The yielded layer index is None.
    """
    first, second = (
      word_vectors.embedding_vectors(
        self._models.eval_model(ref), self._vocabulary(language), language
      )
      for ref, language in _sides(case)
    )
    yield None, (first, second)

  def restricted_file_vectors(
    self, case: study_base.Case
  ) -> Iterator[tuple[int | None, Sides]]:
    """Yields word vectors from files, for words that have a token embedding."""
    for layer, embeddings in self.embeddings(case):
      first, second = (
        vectors.restrict(side.words)
        for vectors, side in zip(
          self.file_vectors(case.pair), embeddings, strict=True
        )
      )
      yield layer, (first, second)

  def layer_means(
    self, case: study_base.Case
  ) -> Iterator[tuple[int | None, Sides]]:
    """Yields each layer's index and its word vectors (mean hidden states).

    The states are averaged over the words in the text. Nothing is yielded if
    the analysis does not have a text.
    """
    if self._settings.text is None:
      return
    depth = min(self._models.num_layers(ref) for ref, _ in _sides(case))
    layers = study_base.chosen_layers(self._settings.layers, depth)
    side_means = [self._mean_states(*side) for side in _sides(case)]
    for layer in layers:
      first, second = (
        means.vectors(layer, least=self._settings.min_count)
        for means in side_means
      )
      yield layer, (first, second)

  def _mean_states(
    self, ref: model_refs.ModelRef, language: str
  ) -> word_vectors.WordMeans:
    """Returns the mean states of the words of a text, and caches them."""
    key = (self._models.resolve(ref), language)
    if key not in self._means:
      # The sums are large, so that only two are kept in memory.
      if len(self._means) > 1:
        self._means.pop(next(iter(self._means)))
      self._means[key] = corpus_hidden_states.mean_word_states(
        self._models.eval_model(ref),
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
    """Returns the file for summed states, or None if there is no directory."""
    if self._settings.directory is None:
      return None
    metadata = self._models.identity(ref) | {
      'language': language,
      'max_length': self._settings.max_length,
      'text': self._digest(language).name,
      'words': eval_task.settings_hash(list(self._vocabulary(language))),
    }
    return word_vectors.Store(
      pathlib.Path(self._settings.directory)
      / f'words.{eval_task.settings_hash(metadata)}.npz',
      eval_task.settings_hash(metadata),
      metadata | {'run': str(ref)},
    )

  def _vocabulary(self, language: str) -> tuple[str, ...]:
    """Returns the words of the text or, without a text, of the dictionaries."""
    if language not in self._words:
      dictionary_words = sorted(self._dictionary_words[language])
      if self._settings.text is None:
        self._words[language] = tuple(dictionary_words)
      else:
        self._words[language] = word_vectors.frequent_words(
          self._lines(language),
          language,
          dictionary_words,
          max_words=self._settings.max_words,
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
  """Returns (model, language) for the first and the second language."""
  return tuple(zip((case.first, case.second), case.pair, strict=True))


def _dictionary_words(*dictionaries: Entries) -> dict[str, set[str]]:
  """Returns the words in the given dictionaries by language."""
  words_by_language: dict[str, set[str]] = {}
  for dictionary in dictionaries:
    for (first, second), entries in dictionary.items():
      for source_word, target_word in entries:
        words_by_language.setdefault(first, set()).add(source_word)
        words_by_language.setdefault(second, set()).add(target_word)
  return words_by_language


def _read_dictionaries(files: Mapping[str, str]) -> Entries:
  """Reads a dictionary for each language pair."""
  entries: Entries = {}
  for name, path in files.items():
    first, dash, second = name.partition('-')
    if not dash or not pathlib.Path(path).is_file():
      raise errors.CorpusError(
        f"The dictionary '{name}={path}' must have the form CODE-CODE=FILE, "
        'such as en-fr=en-fr.txt, and the file must exist'
      )
    with open(path, 'rb') as stream:
      has_tabs = b'\t' in stream.readline()
    dictionary = bilingual_dictionary.Dictionary.read(
      path, languages=(first, second), format='tsv' if has_tabs else 'muse'
    )
    entries[first, second] = [
      (entry.word, entry.translation) for entry in dictionary.entries
    ]
  return entries

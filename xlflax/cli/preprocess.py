"""`xlflax preprocess`: cleans, tokenizes and code-switches a corpus."""

import dataclasses
import json
from typing import Annotated, Any, Literal

import annotated_types

from xlflax.cli import options as shared_options
from xlflax.data.corpus import text_similarity
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.storage import bucket_staging, paths
from xlflax.utils import errors, plurals

_CODE_SWITCH_OPTIONS = (
  'code_switch_probability',
  'code_switch_max_ratio',
  'code_switch_group_lines',
  'code_switch_target_languages',
  'num_copies',
  'seed',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessOptions:
  """Writes a corpus directory with preprocessed text.

  Normalizes, tokenizes and segments text, drops lines and pairs that should not
  be trained on, and replaces words with dictionary translations. Without
  options, lines without letters and pairs whose target copies the source are
  dropped. Compression, document boundaries and the alignment of pairs are
  preserved. Run the same command again after an interruption to resume.

  Attributes:
    corpus: Corpus directory to read.
    output: Corpus directory to write.
    bad_records: Treatment of lines and records that cannot be used: invalid
      UTF-8, invalid JSON, a column without text, or a pair with an empty source
      or target. "error" stops at the first one. "drop" drops them and prints
      their number and examples for each file.
    languages: Languages to write, separated by commas. Defaults to all
      languages.
    moses: Normalize punctuation and tokenize with the Moses rules. The
      dictionaries are processed in the same way.
    split_sentences: Split monolingual lines into sentences before all other
      processing (sentencex).
    strip_markup: Remove HTML tags and comments from all lines, replace
      character references with their characters, and drop lines that contain
      JavaScript, a CSS rule or a JSON object. Elements that are not text, such
      as scripts and styles, are removed with their content, which may extend
      over several lines.
    drop_wrong_encoding: Drop lines with characters that result from a wrong
      encoding, such as U+FFFD, or "Ã©" in place of "é". If a corpus is
      preprocessed several times, pass this option the first time, because the
      other processing replaces no-break spaces of such characters.
    segment_chinese: Insert spaces between Chinese words (jieba).
    min_letters: Minimum number of letters per line. 0 keeps lines without
      letters, such as numbers.
    max_copy_similarity: Maximum fraction of character trigrams that the source
      and target of a pair have in common. Pairs above this value, and pairs
      whose source and target are equal, are dropped as untranslated. 1 keeps
      all pairs.
    min_characters: Minimum length of a line in Latin characters. In other
      scripts, the equivalent number of characters is used.
    max_characters: Maximum length of a line in Latin characters. In other
      scripts, the equivalent number of characters is used.
    min_script_share: Minimum fraction of a line's letters that belong to a
      script of its language.
    min_language_probability: Minimum probability that a line is in the language
      of its file, such as 0.5 (py3langid). The candidates are all languages
      that the identifier supports, weighted by how often they occur in the
      file. Files in languages that it does not support are not checked.
    max_length_ratio: Maximum ratio of the longer to the shorter text of a pair.
      Lengths are measured in Latin characters, or the equivalent number of
      characters in other scripts.
    dedup: Duplicates to drop. "exact" ignores case and punctuation, and "fuzzy"
      drops near-duplicates found by MinHash. Held-out text is read first, so
      that its duplicates are removed from the training text.
    minhash_bands: Number of bands per MinHash signature. Two lines that share a
      band are near-duplicates.
    minhash_rows: Number of hash values per band of a MinHash signature.
    minhash_ngram: Length in characters of the n-grams from which MinHash
      signatures are computed.
    decontaminate_against: Files with evaluation texts, separated by commas. The
      formats include .txt, .jsonl, and .tsv with a text in each column.
      Training lines that have 13 consecutive words in common with these texts,
      or that equal a shorter text, are dropped. In scripts without spaces, the
      equivalent number of characters is used, such as 26 in Chinese and 72 in
      Thai.
    hold_out: Number N of documents to hold out for each language. N documents
      are moved from mono/ to valid/mono/, and another N to test/mono/. For each
      language pair, N sentence pairs are moved from parallel/ to
      valid/parallel/, and another N to test/parallel/. Documents are separated
      by blank lines. In files without blank lines, each line counts as a
      document. Documents with the same words, and pairs with the same source,
      count once and are moved together. Splits that already contain text in a
      language are not changed.
    min_margin: Minimum margin of a training pair. The margin is the cosine
      similarity of the two sentences, divided by the mean similarity to their
      nearest neighbors (Artetxe and Schwenk 2019). 1.06 is a useful value.
    margin_model: Directory of the run whose model encodes the pairs for
      --min_margin.
    margin_layer: Encoder layer whose hidden states are compared for
      --min_margin. 0 is the embedding layer. Defaults to the last layer.
    code_switch: Replace words in monolingual training text with translations
      from the corpus's dictionaries. The tasks `corpus.code_switched.*` do the
      same during training.
    code_switch_probability: Probability of replacing a word that occurs in a
      dictionary.
    code_switch_max_ratio: Maximum fraction of words that are replaced in a
      group of lines.
    code_switch_group_lines: Number of consecutive lines in a group, for
      --code_switch_max_ratio.
    code_switch_target_languages: Languages of the replacement words, separated
      by commas. Defaults to all languages in the dictionaries.
    num_copies: Number of code-switched copies of the text. Each copy has
      different replacements.
    seed: Random seed for code-switching.
    num_workers: Number of worker processes on this host.
    overwrite: Replace an output that was written with different settings.
  """

  corpus: str
  output: str
  bad_records: Literal['error', 'drop'] = 'error'
  languages: shared_options.CommaSeparatedNames | None = None
  moses: bool = False
  split_sentences: bool = False
  strip_markup: bool = False
  drop_wrong_encoding: bool = False
  segment_chinese: bool = False
  min_letters: shared_options.NonNegativeInt = 1
  max_copy_similarity: shared_options.Fraction = text_similarity.COPIED
  min_characters: shared_options.NonNegativeInt = 0
  max_characters: shared_options.PositiveInt | None = None
  min_script_share: shared_options.Fraction = 0.0
  min_language_probability: shared_options.Fraction = 0.0
  max_length_ratio: (
    Annotated[float, annotated_types.Ge(1), annotated_types.Lt(float('inf'))]
    | None
  ) = None
  dedup: Literal['none', 'exact', 'fuzzy'] = 'none'
  minhash_bands: shared_options.PositiveInt = 16
  minhash_rows: shared_options.PositiveInt = 8
  minhash_ngram: shared_options.PositiveInt = 5
  decontaminate_against: shared_options.CommaSeparatedText | None = None
  hold_out: shared_options.PositiveInt | None = None
  min_margin: shared_options.PositiveFloat | None = None
  margin_model: str | None = None
  margin_layer: shared_options.NonNegativeInt | None = None
  code_switch: bool = False
  code_switch_probability: shared_options.Fraction = CodeSwitching.probability
  code_switch_max_ratio: shared_options.Fraction = (
    CodeSwitching.max_replaced_ratio
  )
  code_switch_group_lines: shared_options.PositiveInt = (
    CodeSwitching.group_lines
  )
  code_switch_target_languages: shared_options.CommaSeparatedNames | None = None
  num_copies: shared_options.PositiveInt = CodeSwitching.num_copies
  seed: shared_options.Seed = CodeSwitching.seed
  num_workers: shared_options.NumWorkers = 1
  overwrite: bool = False
  format: shared_options.OutputOptions = shared_options.OutputOptions()
  shard: shared_options.ShardOptions = shared_options.ShardOptions()

  def __post_init__(self):
    shared_options.check_requires(
      self,
      ['minhash_bands', 'minhash_rows', 'minhash_ngram'],
      requires='--dedup=fuzzy',
      satisfied=self.dedup == 'fuzzy',
    )
    shared_options.check_requires(
      self,
      ['margin_model', 'margin_layer'],
      requires='--min_margin',
      satisfied=self.min_margin is not None,
    )
    shared_options.check_requires(
      self,
      ['min_margin'],
      requires='--margin_model',
      satisfied=self.margin_model is not None,
    )
    shared_options.check_requires(
      self,
      _CODE_SWITCH_OPTIONS,
      requires='--code_switch',
      satisfied=self.code_switch,
    )
    shared_options.check_excludes(
      self,
      ['dedup', 'hold_out', 'overwrite'],
      excluded_by='--shard_index or --shard_from_env',
      given=self.shard != shared_options.ShardOptions(),
    )


EXAMPLES = r"""
Process text as ECS and XLM do, with Moses and Chinese word segmentation:
  xlflax preprocess --corpus=raw --output=corpus --moses --segment_chinese \
      --num_workers=8

Write three code-switched copies with the settings of the paper:
  xlflax preprocess --corpus=corpus --output=switched --code_switch \
      --num_copies=3

Clean web text: drop near-duplicates among the lines, split the lines into
sentences, and drop short sentences and those in other scripts and languages:
  xlflax preprocess --corpus=raw --output=corpus --split_sentences \
      --min_characters=20 --min_script_share=0.5 \
      --min_language_probability=0.5 --dedup=fuzzy

Clean a dirty dump: drop null texts, truncated lines and pairs with an empty
side, print their number and examples, and remove HTML and JavaScript:
  xlflax preprocess --corpus=raw --output=corpus --bad_records=drop \
      --strip_markup

Remove duplicates, and hold out 500 documents for validation and 500 for test:
  xlflax preprocess --corpus=raw --output=corpus --dedup=exact --hold_out=500

Drop training text that contains evaluation texts:
  xlflax preprocess --corpus=raw --output=corpus \
      --decontaminate_against=xnli.tsv,sib.txt

Clean pairs of closely related languages, and drop only nearly identical pairs:
  xlflax preprocess --corpus=mined --output=corpus --max_copy_similarity=0.9 \
      --max_length_ratio=3 --dedup=exact

Drop pairs whose texts are not similar according to the encoder of a run:
  xlflax preprocess --corpus=mined --output=corpus --min_margin=1.06 \
      --margin_model=runs/mlm_tlm

Write one of 16 shards, each on a separate machine; any job may be restarted:
  xlflax preprocess --corpus=raw --output=corpus --min_characters=20 \
      --shard_index=3 --num_shards=16
Check the shards after the last job, and write missing files:
  xlflax preprocess --corpus=raw --output=corpus --min_characters=20

Replace more words, and only by words of one of the two languages:
  xlflax preprocess --corpus=corpus --output=switched --languages=en,fr \
      --code_switch --code_switch_target_languages=fr \
      --code_switch_probability=0.5 --code_switch_max_ratio=0.3
"""


def main(options: PreprocessOptions) -> None:
  """Writes output files that do not exist yet, and prints a line for each."""
  shard = options.shard.resolve()
  with bucket_staging.stage_output(options.output, share=shard) as output:
    try:
      files = _preprocess(options, output, shard)
    except errors.TextColumnError:
      raise  # All records of the file may be unusable.
    except errors.BadRecordError as error:
      hint = 'Correct the line or record.'
      if error.fix and '--bad_records' not in error.fix:
        hint = error.fix
      raise errors.BadRecordError(
        error.what,
        got=error.got,
        expected=error.expected,
        where=error.where,
        fix=f'{hint} To drop all invalid lines and records instead, pass '
        '--bad_records=drop. Run `xlflax inspect` to list them.',
      ) from error
  if shard is not None and not options.format.json:
    print(
      f'Shard {shard[0]} of {shard[1]} is complete: '
      f'{plurals.format_count(len(files), "file")}.'
    )


def _preprocess(
  options: PreprocessOptions, output: Any, shard: tuple[int, int] | None
) -> list[Any]:
  """Writes missing files and returns the statistics of all files."""
  from xlflax.data import corpus_checks
  from xlflax.data.corpus.corpus_directory import Corpus
  from xlflax.data.preprocessing import pipeline
  from xlflax.data.preprocessing.contamination import Decontamination
  from xlflax.data.preprocessing.text_processing import TextProcessing

  corpus = Corpus(
    options.corpus, skip_bad_records=options.bad_records == 'drop'
  )
  languages = _split_list(options.languages)
  corpus_checks.log_unknown_languages(
    language
    for language in corpus.languages
    if languages is None or language in languages
  )
  return pipeline.preprocess_corpus(
    corpus,
    output,
    processing=TextProcessing(
      moses=options.moses,
      segment_chinese=options.segment_chinese,
      split_sentences=options.split_sentences,
      strip_markup=options.strip_markup,
    ),
    code_switching=_code_switching(options),
    filters=_filters(options),
    deduplication=_deduplication(options),
    decontamination=Decontamination(
      files=_split_list(options.decontaminate_against) or ()
    ),
    margins=_margin_filter(options),
    languages=languages,
    hold_out=options.hold_out,
    num_processes=options.num_workers,
    shard=shard,
    overwrite=options.overwrite,
    report=_print_json if options.format.json else _print_statistics,
  )


def _filters(options: PreprocessOptions) -> Any:
  """Returns the filters of lines and pairs."""
  from xlflax.data.preprocessing.text_filters import TextFilters

  return TextFilters(
    min_letters=options.min_letters,
    max_similarity=options.max_copy_similarity,
    min_characters=options.min_characters,
    max_characters=options.max_characters,
    min_script_share=options.min_script_share,
    min_language_probability=options.min_language_probability,
    max_ratio=options.max_length_ratio,
    drop_code=options.strip_markup,
    drop_wrong_encoding=options.drop_wrong_encoding,
  )


def _deduplication(options: PreprocessOptions) -> Any:
  """Returns the deduplication settings from the options."""
  from xlflax.data.preprocessing.fuzzy_deduplication import (
    Deduplication,
    DeduplicationMode,
  )

  return Deduplication(
    mode=DeduplicationMode(options.dedup),
    num_bands=options.minhash_bands,
    rows_per_band=options.minhash_rows,
    ngram_size=options.minhash_ngram,
  )


def _margin_filter(options: PreprocessOptions) -> tuple[Any, Any] | None:
  """Returns the filter of pairs by margin and its encoder, or None."""
  if options.min_margin is None or options.margin_model is None:
    return None
  from xlflax.data.preprocessing.margin_filter import MarginFilter
  from xlflax.runs import loaded_run
  from xlflax.training.checkpointing import run_directory

  run = loaded_run.load_run(options.margin_model)
  run_id = run_directory.run_id(paths.to_path(options.margin_model))
  layer = 'last' if options.margin_layer is None else options.margin_layer
  encoder = (
    f'{run_id or options.margin_model}, step {run.step}, layer {layer} of '
    f'{run.sentence}'
  )

  def encode(texts, languages):
    return run.encode(texts, languages=languages, layer=options.margin_layer)

  return MarginFilter(min_margin=options.min_margin, encoder=encoder), encode


def _code_switching(options: PreprocessOptions) -> CodeSwitching | None:
  """Returns the settings of code-switching, or None if it is disabled."""
  if not options.code_switch:
    return None
  return CodeSwitching(
    probability=options.code_switch_probability,
    max_replaced_ratio=options.code_switch_max_ratio,
    group_lines=options.code_switch_group_lines,
    languages=_split_list(options.code_switch_target_languages),
    num_copies=options.num_copies,
    seed=options.seed,
  )


def _split_list(text: str | None) -> tuple[str, ...] | None:
  """Splits text such as 'en, fr' at commas; None stays None."""
  if text is None:
    return None
  return tuple(word.strip() for word in text.split(',') if word.strip())


def _print_json(statistics: Any) -> None:
  """Prints the statistics of a file as JSON."""
  print(json.dumps(dataclasses.asdict(statistics)), flush=True)


def _print_statistics(statistics: Any) -> None:
  """Prints a line about a written file."""
  noun = plurals.pluralize('line', statistics.lines)
  line = f'{statistics.path:<40} {statistics.lines:>12,} {noun}'
  if statistics.words:
    line += (
      f'  {statistics.changed:>12,} of {statistics.words:,} words switched '
      f'({statistics.changed / statistics.words:.1%})'
    )
  if statistics.dropped:
    line += '  dropped: ' + ', '.join(
      f'{count:,} × {reason}' for reason, count in statistics.dropped.items()
    )
  if not statistics.lines:
    line += '  not written: no lines remain'
  print(line + ('  unchanged' if statistics.reused else ''), flush=True)
  for problem in statistics.bad_records:
    print(f'  {problem}', flush=True)

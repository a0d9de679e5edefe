"""`xlflax analyze alignment`: word alignment by layer."""

import dataclasses
from typing import Annotated, Literal

from xlflax.cli import options as shared_options
from xlflax.cli.analyze import analysis_options
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignmentOptions(analysis_options.ModelAnalysisOptions):
  """Uses the hidden states of each layer to align words in translations.

  Reports the alignment error rates of optimal transport and mutual argmax (Chi
  et al., 2022, section 4.4), and writes one layer's alignments in the Pharaoh
  format.

  Attributes:
    gold_alignments: Sentences with gold alignments, as PAIR=TEXT,LINKS with a
      text file of `source ||| target` lines, or PAIR=SOURCE,TARGET,LINKS.
      Repeat the option for several pairs.
    text: Sentences without gold alignments, as PAIR=FILE or PAIR=FILE,FILE,
      with words separated by spaces. The command then writes alignments but no
      error rates. Repeat the option for several pairs.
    maps: Directory written by `xlflax analyze procrustes` for the same models
      and pair. At each layer, the first language's hidden states are mapped
      before words are compared.
    methods: Alignment methods, separated by commas. "mutual_transport" and
      "argmax" intersect the alignments of both directions.
    layer: Layer whose alignments are written to files.
    entropic_reg: Weight of the entropic regularization in optimal transport.
    marginals: Weights of the words in optimal transport. "uniform" weights all
      words equally, and "norm" in proportion to the norms of their hidden
      states.
    threshold: Threshold for alignments. With the transport methods, a word is
      aligned with each word that receives more than this fraction of its mass.
      With "argmax", the similarity of aligned words must also exceed the
      threshold. By default, each word is aligned with its best match.
    index_base: Index of a sentence's first word in the gold alignments.
    max_sentences: Maximum number of sentences per pair. By default, all
      sentences are used.
  """

  gold_alignments: tuple[str, ...] = ()
  text: tuple[str, ...] = ()
  maps: str | None = None
  methods: Annotated[
    tuple[Literal['mutual_transport', 'transport', 'argmax'], ...],
    shared_options.COMMA_SEPARATED,
  ] = ('mutual_transport', 'transport', 'argmax')
  layer: shared_options.LayerIndex = -1
  entropic_reg: shared_options.PositiveFloat = 0.1
  marginals: Literal['uniform', 'norm'] = 'uniform'
  threshold: shared_options.Fraction | None = None
  index_base: Literal[0, 1] = 0
  max_sentences: shared_options.PositiveInt | None = None
  model_options: analysis_options.ModelOptions = analysis_options.ModelOptions()

  def __post_init__(self):
    if bool(self.gold_alignments) == bool(self.text):
      raise errors.ConfigError(
        'Word alignment requires exactly one of '
        '--gold_alignments=PAIR=TEXT,LINKS and --text=PAIR=FILE, but '
        f'{"both are" if self.text else "neither is"} given'
      )
    shared_options.check_requires(
      self,
      ['index_base'],
      requires='--gold_alignments',
      satisfied=bool(self.gold_alignments),
    )


def main(options: AlignmentOptions) -> int:
  """Runs the word alignment analysis."""
  from xlflax.analysis import alignment_study
  from xlflax.similarity import word_links

  analysis = alignment_study.AlignmentStudy(
    source=_open_sentences(options),
    series=options.model_options.series(),
    steps=options.model_options.checkpoint_steps,
    maps=options.maps,
    methods=tuple(map(word_links.Method, options.methods)),
    layer=options.layer,
    entropic_reg=options.entropic_reg,
    marginals=word_links.Mass(options.marginals),
    threshold=options.threshold,
  )
  return analysis_options.run_with_models(options, analysis)


def _open_sentences(options: AlignmentOptions):
  """Returns the sentence pairs, with or without gold alignments."""
  from xlflax.analysis import alignment_study
  from xlflax.data.supervised.sources import example_source

  if options.text:
    files = analysis_options.parse_named_files(options.text, '--text')
    return alignment_study.UnlinkedFiles(
      max_sentences=options.max_sentences,
      files={
        pair: analysis_options.one_or_two_files(value, '--text')
        for pair, value in files.items()
      },
    )
  files = analysis_options.parse_named_files(
    options.gold_alignments, '--gold_alignments'
  )
  return example_source.FileDataset(
    format='word_alignment',
    max_examples=options.max_sentences,
    options={'first_index': options.index_base},
    files={pair: tuple(value.split(',')) for pair, value in files.items()},
  )

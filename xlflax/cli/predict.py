"""`xlflax predict`: labels the words in a text with a fine-tuned run."""

import dataclasses
from typing import Literal

from xlflax.cli import compilation_cache, output_paths
from xlflax.cli import options as shared_options


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions:
  """Predicts a part-of-speech or entity label for each word.

  The output can be used as pseudo-labeled training data for translate-train.

  Attributes:
    model_dir: Directory of a run that was fine-tuned on a tagging task.
    input: Language and its text file, as LANGUAGE=FILE, with one sentence per
      line and spaces between words. Repeat the option for several languages.
    output: Directory to which a file LANGUAGE.conll is written for each
      language.
    step: Training step of the checkpoint. Defaults to the last checkpoint.
    label_scheme: Type of the labels. "entities" repairs the predictions to
      valid IOB2 tags. Defaults to the type that the run was fine-tuned with.
    max_seq_length: Maximum number of tokens per sequence. Defaults to the
      length that the run was fine-tuned with.
    batch_size: Number of sentences per batch.
  """

  model_dir: str
  input: tuple[str, ...]
  output: str
  step: shared_options.NonNegativeInt | None = None
  label_scheme: Literal['tags', 'entities'] | None = None
  max_seq_length: shared_options.PositiveInt | None = None
  batch_size: shared_options.PositiveInt = 64
  compilation: shared_options.CompilationOptions = (
    shared_options.CompilationOptions()
  )


EXAMPLES = r"""
Label translated training text:
  xlflax predict --model_dir=runs/pos/trials/single --output=labeled \
      --input fr=translated.fr --input ja=translated.ja

Train on English and on the labeled text:
  xlflax finetune --gin_file=finetune/tagging.gin --init_from=runs/mlm \
      --gin.FORMAT="'conll'" --output=runs/pos2 --gin.TRAIN_FILES="{
      'en': 'train.en.conll', 'fr': 'labeled/fr.conll'}"
"""


def main(options: PredictOptions) -> None:
  """Labels the files and prints the paths of the written files."""
  files = shared_options.parse_language_paths(options.input, option='--input')
  for language, path in files.items():
    output_paths.check_differs(
      path, f'{options.output}/{language}.conll', option='output'
    )
  compilation_cache.enable(options.compilation.compilation_cache)
  from xlflax.finetuning import pseudo_labels

  source = pseudo_labels.WordLines(files=files)
  for language in files:
    source.load(language)  # Raises errors before the checkpoint is restored.
  labeled_files = pseudo_labels.pseudo_label(
    teacher=options.model_dir,
    output=options.output,
    step=options.step,
    source=source,
    scheme=options.label_scheme,
    length=options.max_seq_length,
    batch_size=options.batch_size,
  )
  for path in labeled_files.values():
    print(path)

"""Options that describe a training run, shared by `train` and `benchmark`."""

import dataclasses
from typing import Any

from xlflax.cli import options as shared_options
from xlflax.config import gin_config
from xlflax.data.tokenizers import vocabulary_spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
  """Run directory, input paths and dummy vocabulary of a training run.

  Attributes:
    model_dir: Directory of the run. Sets the gin macro MODEL_DIR.
    corpus: Corpus directory. Sets the gin macro CORPUS.
    vocabulary: Directory written by `xlflax vocab`. Sets the gin macro
      VOCABULARY.
    cache: Token cache written by `xlflax cache`. Sets the gin macro CACHE_DIR.
    task_module: Module that registers SeqIO tasks, which are read without a
      token cache. Pass an importable name or the path of a Python file. Repeat
      the option for several modules.
    vocabulary_size: Size of a dummy vocabulary that replaces --vocabulary in
      dry runs and benchmarks.
    num_languages: Number of languages in the dummy vocabulary.
  """

  model_dir: str | None = None
  corpus: str | None = None
  vocabulary: str | None = None
  cache: str | None = None
  task_module: tuple[str, ...] = ()
  vocabulary_size: shared_options.PositiveInt | None = None
  num_languages: shared_options.PositiveInt = 1
  gin: shared_options.GinOptions = shared_options.GinOptions()
  compilation: shared_options.CompilationOptions = (
    shared_options.CompilationOptions()
  )

  def __post_init__(self):
    shared_options.check_requires(
      self,
      ['num_languages'],
      requires='--vocabulary_size',
      satisfied=self.vocabulary_size is not None,
    )
    shared_options.check_excludes(
      self,
      ['vocabulary'],
      excluded_by='--vocabulary_size',
      given=self.vocabulary_size is not None,
    )

  def macros(self) -> dict[str, Any]:
    """Returns the gin macros that these options set.

    Gin bindings can override the values.

    A run with a dummy vocabulary reads no data and writes no files. For such a
    run, MODEL_DIR, CORPUS and VOCABULARY are set to an arbitrary value.
    """
    unused = (
      None if self.vocabulary_size is None else gin_config.Placeholder('unused')
    )
    macros = {
      'MODEL_DIR': self.model_dir or unused,
      'CORPUS': self.corpus or unused,
      'VOCABULARY': self.vocabulary or unused,
      'CACHE_DIR': self.cache,
      'TASK_MODULES': list(self.task_module) or None,
    }
    return {name: value for name, value in macros.items() if value is not None}

  def dummy_vocabulary(self) -> dict[str, Any]:
    """Returns the dummy vocabulary as a keyword argument for `Trainer`.

    The result is empty if `vocabulary_size` is not set.
    """
    if self.vocabulary_size is None:
      return {}
    return {
      'vocabulary': vocabulary_spec.make_dummy_spec(
        self.vocabulary_size, num_languages=self.num_languages
      )
    }

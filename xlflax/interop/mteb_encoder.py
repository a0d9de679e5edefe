"""A run as a model of the `mteb` package.

    import mteb, xlflax
    from xlflax.interop.mteb_encoder import MtebEncoder

    model = MtebEncoder(xlflax.open_run('runs/base'), name='me/base')
    mteb.evaluate(model, mteb.get_tasks(tasks=['STS22.v2']))

mteb (2.x) is imported only for the model's metadata.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Protocol

import numpy as np
import pydantic

from xlflax.data.corpus import language_codes
from xlflax.evaluation import sentence_embedding
from xlflax.similarity import cosine
from xlflax.utils import validation


class Encodes(Protocol):
  """What is needed of a run; `xlflax.Run` has it."""

  def encode(
    self, texts: Sequence[str], *, languages: Any = None, **options
  ) -> np.ndarray:
    """One vector for each text, [N, H]."""
    ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Settings:
  """How texts become vectors; see `MtebEncoder`."""

  languages: tuple[str, ...]
  default_language: str | None
  options: Mapping[str, Any]
  prompts: Mapping[str, str]


class MtebEncoder:
  """An encoder as mteb's `EncoderProtocol` describes it."""

  @validation.validate_call
  def __init__(
    self,
    run: Annotated[
      Encodes,
      pydantic.Field(description="a run, such as xlflax.open_run('runs/base')"),
    ],
    *,
    name: str = 'xlflax/run',
    revision: str = 'run',
    languages: Sequence[str] = (),
    default_language: str | None = None,
    prompts: Mapping[str, str] | None = None,
    **options: Any,
  ):
    """Makes the adapter.

    Args:
      run: whose texts are encoded.
      name: of the model in mteb's results, 'organisation/model'.
      revision: in mteb's results.
      languages: codes that the run's vocabulary knows, where it reads
        languages; () for a model that does not.
      default_language: the code of text in another language; None: none.
      prompts: name -> text that stands before texts: `query`, `document`, or
        names as mteb has them, such as `STS` or `Retrieval-query`; None:
        those of the run's own vectors.
      **options: of `Run.encode`: layer, pooling, max_length, batch_size.
    """
    self._run = run
    self._name, self._revision = name, revision
    if prompts is None:
      prompts = getattr(getattr(run, 'sentence', None), 'prompts', {})
    self._settings = _Settings(
      prompts=dict(prompts),
      languages=tuple(languages),
      default_language=default_language,
      options=dict(options),
    )

  def encode(
    self,
    inputs: Iterable[Mapping[str, Sequence[str]]],
    *,
    task_metadata: Any,
    hf_split: str,
    hf_subset: str,
    prompt_type: Any = None,
    **options: Any,
  ) -> np.ndarray:
    """One vector for each text of mteb's batches, float32 [N, H].

    Args:
      inputs: batches with the key 'text'.
      task_metadata: of the task; tells the language of a subset.
      hf_split: is not used.
      hf_subset: such as 'swa', 'eng-fra'.
      prompt_type: `query` or `document`; with the task it names the prompt.
      **options: `batch_size` counts where the adapter was given none; others
        are not used.
    """
    del hf_split
    texts = [text for batch in inputs for text in batch['text']]
    settings = dict(self._settings.options)
    if 'batch_size' in options:
      settings.setdefault('batch_size', options['batch_size'])
    prompt = self._prompt(task_metadata, prompt_type)
    if prompt is not None:
      settings['prompt'] = prompt
    return self._run.encode(
      texts, languages=self._language(task_metadata, hf_subset), **settings
    )

  def similarity(self, embeddings1, embeddings2) -> np.ndarray:
    """The cosines of [N, H] and [M, H], [N, M]."""
    first, second = map(_units, (embeddings1, embeddings2))
    return first @ second.T

  def similarity_pairwise(self, embeddings1, embeddings2) -> np.ndarray:
    """The cosine of each row of [N, H] with that of the other [N, H], [N]."""
    first, second = map(_units, (embeddings1, embeddings2))
    return np.sum(first * second, axis=-1)

  @property
  def mteb_model_meta(self) -> Any:
    """What mteb's results say about the model."""
    from mteb.models.model_meta import ModelMeta

    return ModelMeta.create_empty(
      {'name': self._name, 'revision': self._revision}
    )

  def _prompt(self, task_metadata: Any, prompt_type: Any) -> str | None:
    """The text that mteb would take, or for a document Sentence-Transformers.

    None: the run's default.
    """
    prompts = self._settings.prompts
    side = str(getattr(prompt_type, 'value', prompt_type))
    names: list[str] = []
    for key in ('name', 'type'):
      task = str(getattr(task_metadata, key, None))
      names += [f'{task}-{side}', task]
    names += sentence_embedding.DOCUMENT if side == 'document' else (side,)
    return next((prompts[name] for name in names if name in prompts), None)

  def _language(self, task_metadata: Any, subset: str) -> str | None:
    """The code of a subset's first language that the run knows."""
    known = self._settings.languages
    scripts = task_metadata.hf_subsets_to_langscripts.get(subset, ())
    for script in scripts:  # such as 'swa-Latn'
      code = script.split('-')[0]
      found = language_codes.match_language(
        code, known
      ) or language_codes.match_language(language_codes.short_code(code), known)
      if found is not None:
        return found
    return self._settings.default_language


def _units(vectors: Any) -> np.ndarray:
  """Rows of length 1, [N, H]; of one vector [H], [1, H]."""
  return cosine.normalize_rows(np.atleast_2d(np.asarray(vectors, np.float32)))

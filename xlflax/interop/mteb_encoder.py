"""Adapter that evaluates a run with the `mteb` package.

Example:

    import mteb, xlflax
    from xlflax.interop.mteb_encoder import MtebEncoder

    model = MtebEncoder(xlflax.load_run('runs/base'), name='me/base')
    mteb.evaluate(model, mteb.get_tasks(tasks=['STS22.v2']))

The package mteb (2.x) is imported only to create the model's metadata.
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
  """Interface of runs that `mteb` can evaluate, such as `xlflax.Run`."""

  def encode(
    self, texts: Sequence[str], *, languages: Any = None, **options
  ) -> np.ndarray:
    """Returns one embedding per text, of shape [num_texts, hidden_dim]."""
    ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Settings:
  """Encoding settings. See `MtebEncoder.__init__` for the fields."""

  languages: tuple[str, ...]
  default_language: str | None
  options: Mapping[str, Any]
  prompts: Mapping[str, str]


class MtebEncoder:
  """Encoder that implements mteb's `EncoderProtocol`."""

  @validation.validate_call
  def __init__(
    self,
    run: Annotated[
      Encodes,
      pydantic.Field(description="a run such as xlflax.load_run('runs/base')"),
    ],
    *,
    name: str = 'xlflax/run',
    revision: str = 'run',
    languages: Sequence[str] = (),
    default_language: str | None = None,
    prompts: Mapping[str, str] | None = None,
    **options: Any,
  ):
    """Initializes the adapter.

    Args:
      run: Run that encodes the texts.
      name: Name of the model in mteb's results, in the form
        'organization/model'.
      revision: Revision of the model in mteb's results.
      languages: Language codes of the run's vocabulary. Leave the list empty
        for a model without language inputs.
      default_language: Language code for texts whose language is not in
        `languages`. If None, these texts are encoded without a language.
      prompts: Mapping from each prompt name to the text that is prepended to
        the input texts. Names are `query`, `document` or mteb's own prompt
        names, such as `STS` or `Retrieval-query`. If None, the prompts of the
        run's sentence embedding are used.
      **options: Keyword arguments for `Run.encode`: layer, pooling, max_length
        and batch_size.
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
    """Encodes the texts in mteb's batches.

    Args:
      inputs: Batches of texts. Each batch is a mapping with the list of texts
        under the key 'text'.
      task_metadata: Metadata of the mteb task. It contains the languages of
        each subset.
      hf_split: Name of the data set split. It is ignored.
      hf_subset: Name of the data set's subset, such as 'swa' or 'eng-fra',
        which determines the language.
      prompt_type: Type of the texts, `query` or `document`, or None. Together
        with the task, it selects the prompt.
      **options: Options of mteb. `batch_size` is used if the adapter was
        created without one. All other options are ignored.

    Returns:
      Embeddings as float32, of shape [num_texts, hidden_dim].
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
    """Computes the cosine similarities between all pairs of embeddings.

    Args:
      embeddings1: Embeddings of shape [num_first, hidden_dim].
      embeddings2: Embeddings of shape [num_second, hidden_dim].

    Returns:
      Similarities of shape [num_first, num_second].
    """
    return _normalize(embeddings1) @ _normalize(embeddings2).T

  def similarity_pairwise(self, embeddings1, embeddings2) -> np.ndarray:
    """Computes the cosine similarities of paired embeddings.

    Args:
      embeddings1: Embeddings of shape [num_pairs, hidden_dim].
      embeddings2: Embeddings of shape [num_pairs, hidden_dim].

    Returns:
      Similarities of shape [num_pairs].
    """
    products = _normalize(embeddings1) * _normalize(embeddings2)
    return np.sum(products, axis=-1)

  @property
  def mteb_model_meta(self) -> Any:
    """Model metadata for mteb's results."""
    from mteb.models.model_meta import ModelMeta

    return ModelMeta.create_empty(
      {'name': self._name, 'revision': self._revision}
    )

  def _prompt(self, task_metadata: Any, prompt_type: Any) -> str | None:
    """Returns the prompt for a task and a prompt type.

    The names of the prompts are tried in mteb's order. For documents, the names
    that Sentence-Transformers uses are tried afterwards. None selects the run's
    default.
    """
    prompts = self._settings.prompts
    input_type = str(getattr(prompt_type, 'value', prompt_type))
    names: list[str] = []
    for key in ('name', 'type'):
      task = str(getattr(task_metadata, key, None))
      names += [f'{task}-{input_type}', task]
    if input_type == 'document':
      names += sentence_embedding.DOCUMENT
    else:
      names.append(input_type)
    for name in names:
      if name in prompts:
        return prompts[name]
    return None

  def _language(self, task_metadata: Any, subset: str) -> str | None:
    """Returns the first of a subset's languages that the run supports."""
    languages = self._settings.languages
    scripts = task_metadata.hf_subsets_to_langscripts.get(subset, ())
    for script in scripts:  # A value such as 'swa-Latn'.
      code = script.split('-')[0]
      script_code = script.replace('-', '_')
      for candidate in (script_code, code, language_codes.short_code(code)):
        language = language_codes.match_language(candidate, languages)
        if language:
          return language
    return self._settings.default_language


def _normalize(vectors: Any) -> np.ndarray:
  """Returns the vectors scaled to unit length, of shape [N, H].

  A single vector of shape [H] becomes an array of shape [1, H].
  """
  return cosine.normalize_rows(np.atleast_2d(np.asarray(vectors, np.float32)))

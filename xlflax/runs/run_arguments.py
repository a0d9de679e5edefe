"""What the methods of a run are given: checkpoints, layers, texts, languages."""

import logging
from collections.abc import Sequence

from xlflax.data.corpus import language_codes
from xlflax.evaluation import (
  checkpoint_selection,
  eval_task,
  hidden_states,
  result_store,
  sentence_embedding,
)
from xlflax.evaluation.sentence_embedding import SentenceEncoding
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors, name_suggestions, repr_html

_LOG = logging.getLogger(__name__)


def choose_step(
  run: saved_run.SavedRun, step: int | str, *, best_metric: str | None = None
) -> result_store.Step:
  """The step that a number, 'last', 'best' or 'untrained' means."""
  if step == result_store.UNTRAINED:
    return step
  if isinstance(step, str) and step not in ('last', 'best'):
    raise errors.ConfigError(
      'There is no such checkpoint',
      got=repr(step),
      expected="a step, 'last', 'best' or 'untrained'",
      where='step',
      fix=f'write step={step}'
      if step.isdigit()
      else name_suggestions.did_you_mean(
        step, ('last', 'best', result_store.UNTRAINED)
      ),
    )
  return checkpoint_selection.select_checkpoints(
    run, step if isinstance(step, str) else [step], best_metric=best_metric
  )[0]


def layer_index(subject: eval_task.Subject, layer: int | str) -> int:
  """The index, from 0, of a layer that 'last' or a number means."""
  if isinstance(layer, str) and layer != 'last':
    raise errors.ConfigError(
      'There is no such layer',
      got=repr(layer),
      expected="'last' or an index",
      where='Run.encode.layer',
      fix=f'write layer={layer}' if layer.lstrip('-').isdigit() else None,
    )
  index = -1 if isinstance(layer, str) else layer
  return hidden_states.layer_index(subject, index, where='Run.encode')


def language_ids(
  subject: eval_task.Subject,
  texts: Sequence[str],
  languages: str | Sequence[str] | None,
) -> list[int]:
  """The language id of each text.

  Raises:
    ConfigError: the model needs languages, or their number is wrong.
  """
  reads_languages = subject.needs_languages or getattr(
    subject.model.config, 'use_language_embeddings', False
  )
  if languages is None and not reads_languages:
    return [0] * len(texts)
  codes = [languages] * len(texts) if isinstance(languages, str) else languages
  if codes is None or len(codes) != len(texts):
    raise errors.ConfigError(
      'The languages do not fit the texts',
      got='none' if codes is None else f'{len(codes)} for {len(texts)} texts',
      expected='one code for all texts, or one per text: the model reads '
      'texts of different languages differently'
      if codes is None
      else 'one code for all texts, or one per text',
      where='Run.encode.languages',
    )
  notes: list[str] = []
  ids = {
    code: language_codes.language_id(
      subject.vocabulary, code, notes, required=reads_languages
    )
    for code in dict.fromkeys(codes)
  }
  return [ids[code] for code in codes]


def prompt_of(encoding: SentenceEncoding, name: str | None) -> str:
  """The text of a prompt; of none, the default.

  Raises:
    ConfigError: there is no such prompt.
  """
  names = {'document': sentence_embedding.DOCUMENT}.get(name or '', (name,))
  known = (*encoding.prompts, 'query', 'document')
  if name is not None and name not in known:
    raise errors.ConfigError(
      'The run has no such prompt',
      got=repr(name),
      expected='one of ' + ', '.join(dict.fromkeys(known)),
      where='Run.encode.prompt_name',
      fix=name_suggestions.did_you_mean(name, known)
      or 'give the text itself as prompt=',
    )
  return encoding.prompt(*filter(None, names))


def warn_of_cut(cut: int, texts: Sequence[str]) -> None:
  if cut:
    _LOG.warning('%d of %d texts were cut: too long.', cut, len(texts))


def as_html(run: saved_run.SavedRun, step: result_store.Step) -> str:
  """What a run is, for notebooks."""
  spec = run.vocabulary.spec
  rows = {
    'checkpoint': step,
    'checkpoints': ', '.join(map(str, run.steps)),
    'model': f'{type(run.model).__name__}, {run.model.config}',
    'vocabulary': f'{spec.size:,} entries; {", ".join(spec.languages)}',
    'objectives': ', '.join(run.objectives),
  }
  return repr_html.html_table(f'Run {run.directory}', rows)

"""Reading config.json: every option is used, known to be harmless, or refused.

An option that nobody looked at could change what a model computes.
"""

import ast
import contextlib
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from xlflax.models import activations

# Options without influence on what a model computes from its inputs.
HARMLESS = frozenset(
  {
    'architectures',
    'model_type',
    '_name_or_path',
    'transformers_version',
    'torch_dtype',
    'dtype',
    'torchscript',
    'return_dict',
    'output_attentions',
    'output_hidden_states',
    'output_past',
    'use_cache',
    'use_bfloat16',
    'tf_legacy_loss',
    'chunk_size_feed_forward',
    'gradient_checkpointing',
    'finetuning_task',
    'task_specific_params',
    'problem_type',
    'id2label',
    'label2id',
    'num_labels',
    '_num_labels',
    'tokenizer_class',
    'prefix',
    'language',
    'bos_token_id',
    'eos_token_id',
    'sep_token_id',
    'pad_token_id',
    'mask_token_id',
    'bos_token',
    'eos_token',
    'sep_token',
    'cls_token',
    'pad_token',
    'mask_token',
    'unk_token',
    'cls_token_id',
    'unk_token_id',
    'decoder_start_token_id',
    'forced_bos_token_id',
    'forced_eos_token_id',
    'max_length',
    'min_length',
    'do_sample',
    'early_stopping',
    'num_beams',
    'num_beam_groups',
    'diversity_penalty',
    'temperature',
    'top_k',
    'top_p',
    'typical_p',
    'repetition_penalty',
    'length_penalty',
    'no_repeat_ngram_size',
    'encoder_no_repeat_ngram_size',
    'bad_words_ids',
    'num_return_sequences',
    'output_scores',
    'return_dict_in_generate',
    'remove_invalid_values',
    'exponential_decay_length_penalty',
    'suppress_tokens',
    'begin_suppress_tokens',
    'force_bos_token_to_be_generated',
    'initializer_range',
    'classifier_dropout',
    '_attn_implementation_autoset',
    'attn_implementation',
    '_attn_implementation',
    'auto_map',
    'directionality',
    'pooler_fc_size',
    'pooler_num_attention_heads',
    'pooler_num_fc_layers',
    'pooler_size_per_head',
    'pooler_type',
  }
)

# Options that may only have the value that stands for "not used".
UNUSED: Mapping[str, tuple[Any, ...]] = {
  'is_decoder': (False,),
  'add_cross_attention': (False,),
  'is_encoder_decoder': (False,),
  'tie_encoder_decoder': (False,),
  'cross_attention_hidden_size': (None,),
  'pruned_heads': ({}, None),
  'position_embedding_type': ('absolute', None),
  'quantization_config': (None,),
  'rope_scaling': (None,),
}


@dataclasses.dataclass
class Options:
  """The options of a config.json, and what is wrong with them so far.

  Attributes:
    values: the options, other names of one and the same option resolved.
    problems: what is wrong, a line each.
    has_bias: whether the files hold a bias of the output, which those of base
      models do not.
    has_output: whether the files hold an output table that differs from the
      token embeddings, which some architectures' options do not tell.
  """

  values: dict[str, Any]
  problems: list[str] = dataclasses.field(default_factory=list)
  has_bias: bool = True
  has_output: bool = False
  _used: set[str] = dataclasses.field(default_factory=set)

  def get(self, name: str, default) -> Any:
    """An option's value; null counts as the default, whose type it has."""
    self._used.add(name)
    value = self.values.get(name)
    if value is None:
      return default
    kind: Any = type(default)
    if kind is float and isinstance(value, int):
      with contextlib.suppress(OverflowError):  # no float is so large
        value = float(value)
    if default is not None and (
      not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    ):
      self.problems.append(f'{name} is {value!r}, which is no {kind.__name__}')
      return default
    return value

  def fields(
    self,
    table: Mapping[str, tuple[str, Any]],
    defaults: Mapping[str, Any] | None = None,
  ) -> dict[str, Any]:
    """Field -> value, of a table of option -> (field, default).

    `defaults` has others, by option.
    """
    return {
      field: self.get(name, (defaults or {}).get(name, default))
      for name, (field, default) in table.items()
    }

  def choose(self, name: str, default: str, choices: Mapping[str, str]) -> str:
    """What one of some values stands for."""
    value = self.get(name, default)
    if value not in choices:
      self.problems.append(
        f'{name} is {value!r}; supported: {", ".join(choices)}'
      )
      return choices[default]
    return choices[value]

  def activation(self, name: str, default: str) -> str:
    """The registered name of an activation."""
    return self.choose(name, default, activations.from_huggingface())

  def head(
    self, kind: str, *, predicts: bool, tied: bool = True
  ) -> dict[str, str]:
    """Fields of a masked LM's head.

    Args:
      kind: of the head.
      predicts: whether the model predicts tokens; others have no head.
      tied: the library's default of `tie_word_embeddings`.
    """
    tied = self.get('tie_word_embeddings', tied)
    return {
      'mlm_head': kind if predicts else 'none',
      'output_embeddings': 'own' if predicts and not tied else 'tied',
    }

  def require(self, name: str, *allowed) -> None:
    """Complains unless an option is absent or has one of these values."""
    self._used.add(name)
    if name in self.values and self.values[name] not in allowed:
      self.problems.append(
        f'{name} is {self.values[name]!r}; supported: '
        + ' or '.join(map(repr, allowed))
      )

  def ignore(self, *names: str) -> None:
    """Marks options as harmless for this architecture."""
    self._used.update(names)

  def finish(self) -> None:
    """Complains of options in use that are not, and of unknown ones."""
    for name, allowed in UNUSED.items():
      if name not in self._used:
        self.require(name, *allowed)
    for name in sorted(self.values.keys() - self._used - HARMLESS):
      if not re.match(r'id2|label2|lang2', name):
        self.problems.append(
          f'{name} = {self.values[name]!r} is not an option that is known'
        )


def read_config_options(
  config: Mapping[str, Any], aliases: Mapping[str, str]
) -> Options:
  """Options from a parsed config.json.

  Args:
    config: what the file holds.
    aliases: other name -> name of an option.
  """
  values: dict[str, Any] = {}
  for name, value in config.items():
    name = aliases.get(name, name)
    if name not in values or name in config:
      values[name] = config.get(name, value)
  return Options(values)


def rotary_fields(options: Options, theta: float) -> dict[str, Any]:
  """Fields of rotary positions: plain ones, or all periods stretched alike.

  Args:
    options: of config.json.
    theta: the library's default.
  """
  periods = dict(options.get('rope_parameters', {}))
  kind = periods.pop('rope_type', 'default')
  base = periods.pop('rope_theta', options.get('rope_theta', theta))
  factor = periods.pop('factor', 1.0) if kind == 'linear' else 1.0
  if kind not in ('default', 'linear') or periods:
    options.problems.append(
      f'rope_parameters is {options.values["rope_parameters"]}'
    )
  return {'rotary_theta': float(base), 'rotary_factor': float(factor)}


def of_rotary(config) -> dict[str, Any]:
  """rope_parameters, the inverse of `rotary_fields`."""
  rope_parameters = {'rope_type': 'default', 'rope_theta': config.rotary_theta}
  if config.rotary_factor != 1:
    rope_parameters |= {'rope_type': 'linear', 'factor': config.rotary_factor}
  return rope_parameters


def option_table(text: str) -> dict[str, tuple[str, Any]]:
  """Option -> (field, default), of words such as `dim=hidden_dim:768`."""
  table = {}
  for word in text.split():
    option, field, default = re.split('[=:]', word)
    table[option] = field, ast.literal_eval(default)
  return table


def of_fields(config, table: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
  """Option -> value, the inverse of `Options.fields`."""
  return {name: getattr(config, field) for name, (field, _) in table.items()}

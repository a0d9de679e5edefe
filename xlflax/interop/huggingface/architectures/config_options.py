"""Reader for `config.json` that reports unknown and unsupported options.

Each option is used, is known not to affect the outputs, or is reported as a
problem. Silently skipping an unknown option could change the model's outputs.
"""

import contextlib
import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

from xlflax.models import activations

# Languages of a run that xlflax exported. transformers ignores this option.
LANGUAGES = 'xlflax_languages'
# Options that do not change the outputs of a model.
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
    # Activation that CrossEncoder applies to the scores.
    'sentence_transformers',
    'sbert_ce_default_activation_function',
    'id2label',
    'label2id',
    'num_labels',
    '_num_labels',
    'tokenizer_class',
    'prefix',
    'language',
    LANGUAGES,
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

# Options that are supported only with a value that disables them.
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
  """Options from a `config.json` file, and problems found in them.

  Attributes:
    values: Mapping from option names to values, with aliases resolved.
    problems: Problems found in the options, one description per list element.
    has_bias: Whether the weight files contain an output bias. The files of base
      models do not contain one.
    has_output: Whether the weight files contain an output table that differs
      from the token embeddings. For some architectures, the options do not
      specify this.
    unknown: Names of the options that the model type does not have. The method
      `finish` determines them.
  """

  values: dict[str, Any]
  problems: list[str] = dataclasses.field(default_factory=list)
  has_bias: bool = True
  has_output: bool = False
  unknown: tuple[str, ...] = ()
  _used: set[str] = dataclasses.field(default_factory=set)

  def get(self, name: str, default) -> Any:
    """Returns the value of an option and marks the option as used.

    Args:
      name: Name of the option.
      default: Value to return if the option is missing or null. The option's
        value must have the type of the default, unless the default is None.
    """
    self._used.add(name)
    value = self.values.get(name)
    if value is None:
      return default
    expected_type: Any = type(default)
    if expected_type is float and isinstance(value, int):
      # An integer that is too large for a float is reported below.
      with contextlib.suppress(OverflowError):
        value = float(value)
    if default is not None and (
      not isinstance(value, expected_type)
      or (expected_type is int and isinstance(value, bool))
    ):
      self.problems.append(
        f'{name} is {value!r}, which is not of type {expected_type.__name__}'
      )
      return default
    return value

  def fields(
    self,
    table: Mapping[str, tuple[str, Any]],
    defaults: Mapping[str, Any] | None = None,
  ) -> dict[str, Any]:
    """Reads several options and returns them as configuration fields.

    Args:
      table: Mapping from each option to its configuration field and default
        value.
      defaults: Mapping from options to default values that override those in
        `table`.

    Returns:
      Mapping from fields to values.
    """
    return {
      field: self.get(name, (defaults or {}).get(name, default))
      for name, (field, default) in table.items()
    }

  def choose(self, name: str, default: str, choices: Mapping[str, str]) -> str:
    """Reads an option and returns the value to which `choices` maps it.

    An unsupported value is added to `problems`.

    Args:
      name: Name of the option.
      default: Value to use if the option is missing or its value is not
        supported.
      choices: Mapping from each supported value of the option to the value to
        return.
    """
    value = self.get(name, default)
    if value not in choices:
      self.problems.append(
        f'{name} is {value!r}; supported: {", ".join(choices)}'
      )
      return choices[default]
    return choices[value]

  def activation(self, name: str, default: str) -> str:
    """Returns the registered name of an activation function."""
    return self.choose(name, default, activations.from_huggingface())

  def head(
    self, kind: str, *, predicts: bool, tied: bool = True
  ) -> dict[str, Any]:
    """Returns the configuration fields for a masked LM's head.

    Args:
      kind: Value of the configuration field `mlm_head` if the model predicts
        tokens.
      predicts: Whether the model predicts tokens. Models that do not predict
        tokens have no masked-LM head.
      tied: Default value of `tie_word_embeddings` in transformers.
    """
    tied = self.get('tie_word_embeddings', tied)
    return {
      'mlm_head': kind if predicts else 'none',
      'tie_word_embeddings': tied or not predicts,
    }

  def require(self, name: str, *allowed) -> None:
    """Reports a problem if an option's value is not one of the allowed values.

    A missing option is not reported.
    """
    self._used.add(name)
    if name in self.values and self.values[name] not in allowed:
      self.problems.append(
        f'{name} is {self.values[name]!r}; supported: '
        + ' or '.join(map(repr, allowed))
      )

  def ignore(self, *names: str) -> None:
    """Marks options as used because they have no effect in the architecture."""
    self._used.update(names)

  def finish(self, ignored: Collection[str] = ()) -> None:
    """Reports unknown options, and unread options that have unsupported values.

    Args:
      ignored: Names of unknown options that are not reported.
    """
    for name, allowed in UNUSED.items():
      if name not in self._used:
        self.require(name, *allowed)
    unknown = [
      name
      for name in sorted(self.values.keys() - self._used - HARMLESS)
      if not re.match(r'id2|label2|lang2', name)
    ]
    self.unknown = tuple(name for name in unknown if name not in ignored)
    self.problems += [
      f'{name} = {self.values[name]!r} is not an option of this model type'
      for name in self.unknown
    ]
    self.problems += [
      f'{name} cannot be ignored, because it is not an unknown option'
      for name in ignored
      if name not in unknown
    ]


def read_config_options(
  config: Mapping[str, Any], aliases: Mapping[str, str]
) -> Options:
  """Returns the options in a parsed `config.json` file.

  Args:
    config: Parsed contents of `config.json`.
    aliases: Mapping from alternative option names to option names.
  """
  values: dict[str, Any] = {}
  for name, value in config.items():
    name = aliases.get(name, name)
    if name not in values or name in config:
      values[name] = config.get(name, value)
  return Options(values)


def rotary_fields(options: Options, theta: float) -> dict[str, Any]:
  """Returns the configuration fields for rotary position embeddings.

  Only the default and the linearly scaled embeddings are supported.

  Args:
    options: Options from the model's `config.json`.
    theta: Default value of `rope_theta` in transformers.
  """
  rope_parameters = dict(options.get('rope_parameters', {}))
  rope_type = rope_parameters.pop('rope_type', 'default')
  rope_theta = rope_parameters.pop(
    'rope_theta', options.get('rope_theta', theta)
  )
  factor = rope_parameters.pop('factor', 1.0) if rope_type == 'linear' else 1.0
  if rope_type not in ('default', 'linear') or rope_parameters:
    options.problems.append(
      f'rope_parameters is {options.values["rope_parameters"]}'
    )
  return {'rope_theta': float(rope_theta), 'rope_scaling_factor': float(factor)}


def rope_parameters(config) -> dict[str, Any]:
  """Returns the option `rope_parameters` (the inverse of `rotary_fields`)."""
  parameters = {'rope_type': 'default', 'rope_theta': config.rope_theta}
  if config.rope_scaling_factor != 1:
    parameters |= {'rope_type': 'linear', 'factor': config.rope_scaling_factor}
  return parameters


def write_fields(
  config, table: Mapping[str, tuple[str, Any]]
) -> dict[str, Any]:
  """Converts configuration fields to options (inverse of `Options.fields`)."""
  return {name: getattr(config, field) for name, (field, _) in table.items()}

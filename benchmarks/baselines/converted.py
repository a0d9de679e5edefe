"""Hugging Face baselines with random weights, and their xlflax conversions."""

import pathlib
import tempfile

import torch
import transformers

from benchmarks import shapes
from benchmarks.baselines import xlm_roberta
from xlflax.interop.huggingface import config_json, tensor_mapping
from xlflax.interop.huggingface.tensors import tensor_files, weights

# The scale is larger than the usual 0.02, so that the probabilities of tokens
# differ by more than the rounding errors of the libraries. The weights of the
# layers are even larger, so that a decoder does not just repeat its input.
_SCALE = 0.08
_LAYER_SCALE = 4.0


def make_encoder(shape: shapes.Shape) -> transformers.XLMRobertaModel:
  """Returns a randomly initialized Hugging Face XLM-R model in eval mode."""
  torch.manual_seed(0)
  return transformers.XLMRobertaModel(
    xlm_roberta.make_config(shape), add_pooling_layer=False
  ).eval()


def make_encoder_decoder(
  shape: shapes.Shape, *, positions: int
) -> transformers.MBartForConditionalGeneration:
  """Returns a randomly initialized Hugging Face mBART model in eval mode.

  Args:
    shape: Sizes of the encoder and the decoder.
    positions: Maximum number of tokens per sequence, which determines the size
      of the table of position embeddings.
  """
  torch.manual_seed(0)
  model = transformers.MBartForConditionalGeneration(
    transformers.MBartConfig(
      vocab_size=shape.vocabulary,
      d_model=shape.hidden,
      encoder_layers=shape.layers,
      decoder_layers=shape.layers,
      encoder_attention_heads=shape.heads,
      decoder_attention_heads=shape.heads,
      encoder_ffn_dim=shape.mlp,
      decoder_ffn_dim=shape.mlp,
      max_position_embeddings=positions,
      init_std=_SCALE,
      scale_embedding=True,
      forced_eos_token_id=None,
      bos_token_id=shapes.BOS,
      pad_token_id=shapes.PAD,
      eos_token_id=shapes.EOS,
      decoder_start_token_id=shapes.BOS,
    )
  )
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if '.layers.' in name and parameter.ndim == 2:
        parameter.mul_(_LAYER_SCALE)
  return model.eval()


def convert_model(model: transformers.PreTrainedModel):
  """Converts a Hugging Face model to an xlflax configuration and parameters."""
  with tempfile.TemporaryDirectory() as directory:
    model.save_pretrained(directory)
    return read_model(pathlib.Path(directory))


def read_model(folder: pathlib.Path):
  """Converts a Hugging Face folder to xlflax's configuration and parameters."""
  tensors = tensor_files.find_tensors(folder)
  description = config_json.describe_model(folder, tensors)
  params = weights.load_parameters(
    tensor_mapping.make_tensor_mapping(description, tensors)
  )
  return description.config, params

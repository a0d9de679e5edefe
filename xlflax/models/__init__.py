"""Flax Linen modules for encoders and encoder-decoders."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.models.adapter_config import Bottleneck, LoRA
  from xlflax.models.encoder import Encoder
  from xlflax.models.encoder_config import EncoderConfig
  from xlflax.models.encoder_decoder import EncoderDecoder
  from xlflax.models.encoder_decoder_config import EncoderDecoderConfig
  from xlflax.models.model_params import count_params, init_params
  from xlflax.models.variants.parameter_sharing import SharingPlan

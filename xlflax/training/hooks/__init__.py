"""Hooks that are called by the training loop."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.training.hooks.hook_base import Hook, Request

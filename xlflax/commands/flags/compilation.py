"""The flag of the persistent compilation cache, for commands with flags."""

import os

from xlflax.cli import compilation_cache

FLAG = f"""
--compilation_cache DIR (default
  {os.environ.get('XLFLAX_COMPILATION_CACHE', '~/.cache/xlflax/compilation')}):
  folder of compiled programs, reused by later runs; "" for none
"""
use = compilation_cache.enable

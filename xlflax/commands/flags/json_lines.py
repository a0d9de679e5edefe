"""`--json`: what a command says as lines of JSON, for programs."""

import argparse
import json
from collections.abc import Iterable, Mapping
from typing import Any

from xlflax.foundation import flag_tables

_FLAG = """
--json (switch): one JSON object a line: results on standard output, the log on
  standard error
"""


def add(parser: argparse.ArgumentParser) -> None:
  """Adds the flag; `xlflax.cli` writes the log as it says."""
  flag_tables.add(parser, _FLAG)


def show(results: Iterable[Mapping[str, Any]]) -> None:
  """Prints results, one a line."""
  for result in results:
    print(json.dumps(result), flush=True)

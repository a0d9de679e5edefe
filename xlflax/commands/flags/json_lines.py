"""`--json`: what a command says as lines of JSON, for programs."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

FLAG = """
--json (switch): one JSON object a line: results on standard output, the log on
  standard error
"""  # `xlflax.cli` writes the log as it says


def show(results: Iterable[Mapping[str, Any]]) -> None:
  """Prints results, one a line."""
  for result in results:
    print(json.dumps(result), flush=True)

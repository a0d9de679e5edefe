"""A page's server in this process."""

import contextlib
import threading
from collections.abc import Iterator

from xlflax.runs import server


@contextlib.contextmanager
def served(answer) -> Iterator[str]:
  """The address at which pages of `answer` are, while the context lasts."""
  opened = server.open_server(answer, host='127.0.0.1', port=0)
  thread = threading.Thread(target=opened.serve_forever)
  thread.start()
  try:
    yield f'http://127.0.0.1:{opened.server_port}'
  finally:
    opened.shutdown()
    thread.join()
    opened.server_close()

"""Suites of evaluation tasks whose results are merged into one leaderboard."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.suites.suite_config import Suite, SuiteTask

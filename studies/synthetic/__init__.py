"""Parallel synthetic languages with gold labels for all task families."""

from studies.synthetic.generator import write_languages
from studies.synthetic.options import SyntheticOptions

__all__ = ['SyntheticOptions', 'write_languages']

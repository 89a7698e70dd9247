"""Reports of results: sections built once, printed on a terminal or drawn as figures.

The public names are in `__init__.pyi`; each is imported at first use.
"""

from jaxmb.runtime import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)

"""jaxmb: identification of the physical parameters of flexible multibody systems from measurements.

Importing jaxmb enables 64-bit floats in JAX, which identification needs, and a cache of compiled programs; settings of
the user take precedence (see `jaxmb.runtime`). The public names are in `__init__.pyi`; each is imported at first use.

More names by subject: `jaxmb.studies`, `jaxmb.results`, `jaxmb.plan`, `jaxmb.laws`, `jaxmb.deflections`, `jaxmb.maps`,
`jaxmb.report`, `jaxmb.estimation`, `jaxmb.fitting`.
"""

from importlib.metadata import version

from jaxmb.runtime import prepare, public_names

prepare()

__version__ = version("jaxmb")
__getattr__, __dir__, __all__ = public_names(__name__, __file__)

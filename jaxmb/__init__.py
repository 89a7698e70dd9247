"""jaxmb: physical parameters of flexible multibody systems from measurements.

Importing jaxmb turns on 64-bit floats in JAX, which identification needs, unless JAX_ENABLE_X64 is set in the
environment.
"""

import os as _os

import jax as _jax

if "JAX_ENABLE_X64" not in _os.environ:
    _jax.config.update("jax_enable_x64", True)

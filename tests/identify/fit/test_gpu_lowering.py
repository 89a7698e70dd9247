"""The hot loop as XLA gets it for CUDA. That it lowers without what only a host has is all that is tested: it is not
run here."""

import re

import equinox as eqx
import jax
import jax.export
import numpy as np
import pytest

from jaxmb.identify.estimation.least_squares import Box, start
from jaxmb.identify.fit import devices as blocks
from jaxmb.identify.fit.refine import _advance_least_squares
from jaxmb.identify.fit.search import PopulationSearch, _some_generations
from tests.identify.arm import frf, loads, shapes, study_of

ON_CUDA = {"cusolver_getrf_ffi", "cusolver_potrf_ffi", "cusolver_syevd_ffi", "cu_lu_pivots_to_permutation"}
"""Factors and eigenvalues of small matrices by cuSOLVER: LU at every line, Cholesky in the step of least squares."""
EIGEN = "cuhybrid_eig_real"
"""Eigenvalues of modal tests: JAX copies the matrices to the host, where LAPACK solves them."""


@pytest.fixture(autouse=True)
def in_blocks_as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(blocks, "_on_cpu", lambda: False)


def cuda_calls(function, *arguments):
    """Names of what a compiled function calls beside XLA's own operations, lowered for CUDA."""
    arrays, rest = eqx.partition(arguments, eqx.is_array)
    program = jax.jit(lambda a: function(*eqx.combine(a, rest)))
    known = [jax.export.DisabledSafetyCheck.custom_call(EIGEN)]
    text = jax.export.export(program, platforms=["cuda"], disabled_checks=known)(arrays).mlir_module()
    assert "f64" in text
    return set(re.findall(r"custom_call @([\w.\-]+)", text))


def points_of(problem):
    free = problem.free
    box = Box(free.lower, free.upper, jax.device_put(np.array(free.logarithmic)))
    lower, upper = np.asarray(box.lower), np.asarray(box.upper)
    return box, lower + np.linspace(0.1, 0.9, 8)[:, None] * (upper - lower)


def refinement_calls(problem):
    box, points = points_of(problem)
    return cuda_calls(_advance_least_squares, problem, box, np.asarray(1e-9), start(points), np.asarray(10))


def test_search_and_refinement_of_frfs_and_deflections(tmp_path):
    problem = study_of(tmp_path, frf(), frf(b=0.9), loads()).problem
    box, points = points_of(problem)
    search = PopulationSearch(problem, box, "SimpleGA", 8, 10)
    state = search.begin(0, points)
    found = cuda_calls(_some_generations, search._evosax[0], search._evosax[2], problem, box, state, np.asarray(10))
    assert found <= ON_CUDA
    assert refinement_calls(problem) <= ON_CUDA


def test_refinement_of_modes(tmp_path):
    assert refinement_calls(study_of(tmp_path, shapes()).problem) <= ON_CUDA | {EIGEN}

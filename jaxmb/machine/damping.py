"""Laws of damping that hold for a whole machine."""

from jaxmb.machine.values import NonNegative, Part


class Rayleigh(Part):
    """Rayleigh damping of small motions: C = alpha M + beta K_e is added to the dampers' damping matrix."""

    mass: NonNegative = 0.0
    """alpha, 1/s."""
    stiffness: NonNegative = 0.0
    """beta, s."""

"""Machines from URDF."""

from jaxmb.machine.schema import Machine


def machine_from_urdf(text: str, name: str) -> Machine:
    raise NotImplementedError

"""Figures of `jaxmb map`: those of an earlier command do not stay beside a new map.json."""

from collections.abc import Iterable
from pathlib import Path

from jaxmb.maps.maps import QUANTITIES
from jaxmb.maps.modal_maps import MODAL_QUANTITIES


def remove_stale_figures(folder: Path, written: Iterable[Path]) -> None:
    """Remove the figures that the command can write and has not written this time; never another file.

    Raises:
        OSError: a file cannot be removed.
    """
    names = {f"{name}-{space}.png" for name in QUANTITIES for space in ("joints", "workspace")}
    names |= {f"{name.replace('_', '-')}.png" for name in MODAL_QUANTITIES}
    for name in sorted(names - {path.name for path in written}):
        (folder / name).unlink(missing_ok=True)

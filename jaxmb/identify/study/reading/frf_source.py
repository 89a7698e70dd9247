"""What was measured in an FRF test: read or simulated, put in order, and made ready for the fit."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from jaxmb.identify.experiments.entry import Source, Truth
from jaxmb.identify.study.format.frf_format import FrfTestPart
from jaxmb.identify.study.reading.points import at_points
from jaxmb.identify.study.setting import Setting
from jaxmb.identify.study.simulation.frf import simulated_frf
from jaxmb.machine.build import Model
from jaxmb.measurement.frf_set import FrfSet, in_band, pick, to_si, with_unit
from jaxmb.measurement.modal.analysis import modal_analysis
from jaxmb.measurement.modal.model import synthesize
from jaxmb.measurement.reciprocity import reciprocal_pairs, symmetrized, unsymmetry
from jaxmb.measurement.source import measured_frf
from jaxmb.measurement.units import SI_UNITS, UNKNOWN, same_unit
from jaxmb.response.frf_kind import Point, dof_names
from jaxmb.response.sensor import Sensor

SILENT = (".npz", ".mat", ".csv")
"""Files that are in SI where they do not say their unit, so that SI may not be their own word."""
OPPOSITE = 0.85
"""Unsymmetry from which two responses of a pair are opposite: 1 where one is minus the other, 0.71 where they have
nothing to do with each other. 0.85 is a correlation of -0.44 between responses of the same size."""
SAME_POSTURE = 1e-4
"""Two postures are the same where their coordinates agree to this, rad or m."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class FrfSource(Source):
    """What is known of an FRF test beside what the fit sees."""

    fitted: FrfSet
    """The responses that are fitted: of the points of the test, in SI, within the band."""
    everything: FrfSet
    """All that was measured, the points for the shapes included, as it was measured."""
    treatment: str
    """What was made of it before the fit, "synthesized and mirrored"; empty where nothing was."""
    frequency_unit: str
    """What figures call the unit of frequency."""
    truth: Truth | None
    """The machine behind it where it was simulated."""
    remarks: tuple[str, ...]
    """Sentences on how the FRFs came about."""


def measured_responses(
    part: FrfTestPart, outputs: tuple[Point, ...], inputs: tuple[Point, ...], setting: Setting
) -> FrfSource:
    """The responses of an FRF test, as its description asks for them.

    Args:
        part: what the study says of the test.
        outputs: points of the test.
        inputs: likewise.
        setting: of the test.

    Raises:
        ValueError: the data cannot be used as described.
    """
    sensors = outputs + tuple(
        (frame, axis) for frame in part.shape_frames for axis in "xyz" if (frame, axis) not in outputs
    )
    truth, remarks = None, ()
    if part.simulate is not None:
        everything, truth = simulated_frf(part.simulate, part.posture, sensors, inputs, setting, sensor_of(part))
    else:
        everything, remarks = _from_file(part, setting.folder, sensors, inputs, setting.model)
    analysis = None
    if part.modal is not None:
        analysis = modal_analysis(
            everything, band_hz=part.modal.band_hz, max_order=part.modal.max_order, chosen=part.modal.chosen_hz
        )
    responses = everything
    if part.fit == "synthesized" and analysis is not None:
        responses = synthesize(analysis.model, everything.frequency_hz)
        if part.band_hz is None:
            responses = in_band(responses, analysis.model.band_hz)
    responses = pick(responses, dof_names(outputs), dof_names(inputs))
    if part.band_hz is not None:
        responses = in_band(responses, part.band_hz)
    if part.symmetrize is not None:
        remarks = (*remarks, *_opposite(responses))
        responses = symmetrized(responses, keep=part.symmetrize)
    return FrfSource(
        fitted=responses,
        everything=everything,
        treatment=_treatment(part),
        frequency_unit=part.frequency_unit,
        modal=analysis,
        truth=truth,
        remarks=remarks if analysis is None else remarks + analysis.remarks,
    )


def _treatment(part: FrfTestPart) -> str:
    done = ["synthesized"] if part.fit == "synthesized" else []
    if part.symmetrize is not None:
        done.append("mean of pairs" if part.symmetrize == "mean" else "mirrored")
    return " and ".join(done) if part.symmetrize != "mean" else ", ".join(done)


def _opposite(responses: FrfSet) -> list[str]:
    """A sentence on the pairs of cross responses of which one is minus the other, where there are such."""
    if not reciprocal_pairs(responses):
        return []  # which `symmetrized` refuses
    found = {name: d for name, d in unsymmetry(responses).items() if d > OPPOSITE}
    if not found:
        return []
    listed = ", ".join(f"{name} ({d:.2f})" for name, d in found.items())
    return [
        f"{listed}: opposite to what was measured the other way round (unsymmetry, 1 where one is minus the other):"
        ' is a sensor reversed? Name it "-x" where it is named, in the file or in outputs'
    ]


def points_text(points: Iterable[Point]) -> str:
    """Points for a message."""
    return ", ".join(dof_names(points))


def _from_file(
    part: FrfTestPart, folder: Path, outputs: tuple[Point, ...], inputs: tuple[Point, ...], model: Model
) -> tuple[FrfSet, tuple[str, ...]]:
    estimate = measured_frf(str(part.file), folder)
    read, remarks = estimate.frf_set, estimate.remarks
    read = dataclasses.replace(read, source=read.source or str(part.file))
    if part.unit is not None:
        if read.unit != UNKNOWN and not same_unit(read.unit, part.unit, read.kind):
            if Path(str(part.file)).suffix.lower() not in SILENT:
                raise ValueError(
                    f"unit is '{part.unit}', but '{read.source}' states {read.unit}: expected that or none"
                )
            remarks = (*remarks, f"'{read.source}' is taken to be in {part.unit} as the study says, not in {read.unit}")
        read = with_unit(read, part.unit)
    if read.unit == UNKNOWN:
        raise ValueError(
            f"the unit of '{read.source}' is not known, expected unit = \"...\" in the test, such as"
            f" '{SI_UNITS[read.kind]}'"
        )
    read = to_si(read)
    _check_posture(read, part.posture, model)
    taken = at_points(read, outputs, inputs, part.nodes, model)
    return taken, (*remarks, *(_without_coherence(taken) if part.coherence else ()))


def _without_coherence(taken: FrfSet) -> list[str]:
    """A sentence on the outputs of whose responses no coherence is a number, where the set has a coherence."""
    if taken.coherence is None:
        return []
    lost = [name for o, name in enumerate(taken.outputs) if not np.isfinite(taken.coherence[:, o]).any()]
    if not lost:
        return []
    return [f"the coherence of {', '.join(lost)} holds no number: no line there counts for less by it"]


def _check_posture(read: FrfSet, at: dict[str, float], model: Model) -> None:
    """Raise ValueError where the file was measured at another posture than the test says."""
    for name, value in read.posture.items():
        if name in at and abs(at[name] - value) > SAME_POSTURE:
            raise ValueError(f"'{read.source}' was measured at {name} = {value:.6g}, posture has {at[name]:.6g}")
        if name in model.coordinates and name not in at:
            raise ValueError(f"'{read.source}' was measured at {name} = {value:.6g}, expected the same in posture")


def sensor_of(part: FrfTestPart) -> Sensor:
    """What the sensors of a test measure."""
    return Sensor(part.sensor.gravity, part.sensor.high_pass_hz)

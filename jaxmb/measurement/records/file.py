"""Time records described by a TOML file, built-in or the user's; frequency responses estimated from them or read."""

import dataclasses
import itertools
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from jaxmb.io.files import find_description, is_number, library_names, read_arrays, read_toml, reading
from jaxmb.io.validation import InputError, error_location, validated
from jaxmb.measurement.files.frf_file import FRF_READERS, read_frf_and_remarks
from jaxmb.measurement.files.matlab import Shapes, read_variables
from jaxmb.measurement.files.uff import read_time_histories
from jaxmb.measurement.frf_set import (
    SI_UNITS,
    UNKNOWN,
    FrfLabels,
    FrfSet,
    point_names,
    same_unit,
    unit_over,
    unit_scale,
)
from jaxmb.measurement.reciprocity import stack_inputs
from jaxmb.measurement.records.impacts import (
    HitTest,
    cut_hits,
    double_hit,
    estimate_frf_from_hits,
    find_hits,
    is_overloaded,
)
from jaxmb.measurement.records.schema import DataFile, Hits, Noise, Periodic, PublicData, RecordsFile
from jaxmb.measurement.records.spectra import decay_of_end_level
from jaxmb.measurement.records.time_records import estimate_frf, estimate_periodic_frf, leakage_remark

ENDINGS = (".mat", ".npz", ".csv", ".uff", ".unv")
SI_BY_DEFAULT = (".npz", ".mat", ".csv")
"""File formats whose responses are taken as SI where the file states no unit."""
DATA_FOLDER = "JAXMB_DATA"
"""Environment variable with the folder of published data."""

RATE_ROUNDING = 1e-4
"""Relative tolerance of the sample rate of a universal file, whose steps have six digits."""


def read_columns(path: Path, variable: str | None, columns: Sequence[int], sample_rate_hz: float) -> np.ndarray:
    """Columns [n, column] of a matrix in a file, counted from 1.

    Args:
        path: a file with an extension of `ENDINGS`; a .csv file may begin with one line of names. The columns of a
            universal file are its time responses (dataset 58, type 1).
        variable: of a .mat or .npz file; where not given, its only array of more than one number.
        columns: column numbers, from 1.
        sample_rate_hz: stated sample rate, which that of a universal file must equal.

    Raises:
        InputError: the file cannot be read, has no such variable or column of numbers, or another sample rate.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"{path}: cannot read time records from it, expected a file ending in {', '.join(ENDINGS)}")
    with reading(path):
        if ending not in (".mat", ".npz") and variable is not None:
            raise ValueError(f"variable is '{variable}', expected none for a {ending} file")
        if ending == ".csv":
            name, matrix = "the table", _read_csv(path)
        elif ending in (".uff", ".unv"):
            name, (matrix, rate, _) = "the time responses", read_time_histories(path)
            if abs(rate / sample_rate_hz - 1.0) > RATE_ROUNDING:
                raise ValueError(f"sampled at {rate:.5g} Hz, but the stated rate is {sample_rate_hz:.6g} Hz")
        else:
            name, matrix = (_read_npz if ending == ".npz" else _read_mat)(path, variable)
        if matrix.ndim == 1:
            matrix = matrix[:, None]
        if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind not in "iuf":
            raise ValueError(
                f"{name} is an array of {matrix.dtype} of shape {matrix.shape}, expected real numbers [sample, column]"
            )
        if max(columns) > matrix.shape[1]:
            raise ValueError(f"column is {max(columns)}, expected at most the {matrix.shape[1]} of {name}")
    return matrix[:, np.asarray(columns) - 1].astype(float)


def _read_npz(path: Path, variable: str | None) -> tuple[str, np.ndarray]:
    arrays = read_arrays(path)
    name = _chosen(variable, {name: array.shape for name, array in arrays.items() if array.dtype.kind in "iuf"})
    return f"array '{name}'", arrays[name]


def _read_mat(path: Path, variable: str | None) -> tuple[str, np.ndarray]:
    def choice(shapes: Shapes, _: object) -> tuple[str, list[str]]:
        return "", [_chosen(variable, {n: shape for n, (shape, kind) in shapes.items() if kind in _NUMBERS})]

    ((name, matrix),) = read_variables(path, choice).items()
    return f"variable '{name}'", np.asarray(matrix)


_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_NUMBERS = ("double", "single", "float64", "float32", *_INTEGERS)
"""Class names of numbers, as written by MATLAB and, for other programs, as HDF5 types."""


def _chosen(variable: str | None, found: Mapping[str, tuple[int, ...]]) -> str:
    listed = ", ".join(f"{name} {shape}" for name, shape in list(found.items())[:12]) or "none"
    sizes = {name: np.prod(np.array(shape, dtype=float)) for name, shape in found.items()}
    # a single number, such as the sample rate, is no record
    records = [name for name, size in sizes.items() if size != 1.0] or list(found)
    if variable is None and len(records) != 1:
        raise ValueError(f"holds {len(found)} arrays of numbers ({listed}), expected the name of one: variable")
    variable = records[0] if variable is None else variable
    if variable not in found:
        raise ValueError(f"has no array of numbers '{variable}', found {listed}")
    return variable


def _read_csv(path: Path) -> np.ndarray:
    with path.open(encoding="utf-8-sig") as file:
        first = file.readline(1_000_000)
    if not first.strip():
        raise ValueError("the first line is empty, expected names or numbers")
    separator = next((c for c in ";,\t" if c in first), None)
    names = 0 if all(map(is_number, first.split(separator))) else 1
    try:
        with warnings.catch_warnings(action="ignore"):  # of a file without numbers, which is refused
            table = np.loadtxt(path, delimiter=separator, skiprows=names, ndmin=2, encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise
    except (ValueError, MemoryError) as error:
        raise ValueError(
            f"no table of numbers: {str(error).rstrip('.')}, expected at most one line of names, points in numbers and"
            f" one separator, as {separator or ' '!r} in line 1"
        ) from None
    if separator == "," and table.shape[1] == 2:
        with path.open(encoding="utf-8-sig") as file:
            # no number of a second column begins with 0 and a digit
            wrong = next((line.strip() for line in file if re.search(r",0\d", line)), None)
        if wrong is not None:
            raise ValueError(f"a line is '{wrong}', a number with a decimal comma, expected points in numbers")
    return table


@dataclasses.dataclass(frozen=True, eq=False)
class TimeRecord:
    """Forces and responses recorded simultaneously."""

    force: np.ndarray
    """[n, input], in `force_unit`."""
    response: np.ndarray
    """[n, output]."""
    sample_rate_hz: float
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    unit: str
    """Unit of the responses over that of the forces, or "unknown"."""
    source: str
    """The file."""


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredFrf:
    """Frequency responses of a file, estimated from time records, or computed, with remarks."""

    frf_set: FrfSet
    remarks: tuple[str, ...]
    """On rejected hits with the reason, segments too short for a peak, units, data that were left out."""
    summary: tuple[str, ...] = ()
    """Averages used, one line per input of hits or one for all."""
    hits: tuple[FrfSet, ...] = ()
    """Responses to single hits, one input each, where several were averaged."""


def measurement_names() -> tuple[str, ...]:
    """Names of the descriptions of measurements that come with jaxmb."""
    return library_names("measurements")


def load_records_file(name_or_path: str | os.PathLike[str]) -> tuple[RecordsFile, Path]:
    """Description of time records, and its path, from a built-in name or a TOML file.

    Raises:
        InputError: neither a built-in name nor a file, or not a description of time records.
    """
    path = find_description(name_or_path, "measurements", "measurement", (".toml",))
    return validated(RecordsFile, read_toml(path), str(path)), path


def read_records(name_or_path: str | os.PathLike[str]) -> tuple[TimeRecord, ...]:
    """The calibrated time records of a description.

    Args:
        name_or_path: "daisy-subframe", "hammer/records.toml"; paths in the file are relative to it.

    Raises:
        InputError: the description or a file it names is invalid, or public data are missing; the message names the
            file and the source of the data.
    """
    return _records(*load_records_file(name_or_path))


def frf_of_records(name_or_path: str | os.PathLike[str]) -> FrfSet:
    """Frequency responses estimated from described time records, see `estimate_of_records`."""
    return estimate_of_records(name_or_path).frf_set


def estimate_of_records(name_or_path: str | os.PathLike[str]) -> MeasuredFrf:
    """Frequency responses estimated from described time records, with remarks.

    Raises:
        InputError: see `read_records`; or the estimate fails.
    """
    description, path = load_records_file(name_or_path)
    records = _records(description, path)
    labels: FrfLabels = {
        "kind": description.kind,
        "outputs": records[0].outputs,
        "inputs": records[0].inputs,
        "unit": records[0].unit,
        "posture": description.posture,
        "nodes": description.nodes,
        "trace_lines": description.trace_lines,
        "source": description.source or str(path),
    }
    method = description.method
    with error_location(str(path)):
        if isinstance(method, Hits):
            return _from_hits(records, method, description, labels)
        found = _from_shaker(records[0], method, labels)
        return dataclasses.replace(found, remarks=(*found.remarks, *_overloads(records[0], description)))


def _overloads(record: TimeRecord, description: RecordsFile) -> Iterator[str]:
    """Remarks on clipped channels of a continuous excitation."""
    both = ("force", record.force, description.forces), ("response", record.response, description.responses)
    for what, signals, channels in both:
        for number, signal in enumerate(signals.T, 1):
            if is_overloaded(signal, channels.full_scale):
                size = np.abs(signal)
                clipped = np.count_nonzero(size >= (1.0 - 1e-6) * min(size.max(), channels.full_scale or np.inf))
                yield (
                    f"{what} {number} was overloaded: {clipped} of {signal.size} samples are at its limit, which biases"
                    " the FRFs; measure again with a larger range"
                )


def _from_shaker(record: TimeRecord, method: Noise | Periodic, labels: FrfLabels) -> MeasuredFrf:
    remark, averaged = None, "periods"
    if isinstance(method, Periodic):
        harmonics = range(method.first_harmonic, method.last_harmonic + 1, method.step)
        frf_set = estimate_periodic_frf(
            record.force, record.response, record.sample_rate_hz, method.period, harmonics, **labels
        )
    else:
        averaged = "independent averages"
        frf_set = estimate_frf(
            record.force, record.response, record.sample_rate_hz,
            segment=method.segment, overlap=method.overlap, window=method.window, estimator=method.estimator, **labels,
        )  # fmt: skip
        # a boxcar is used for burst noise that decays within the segment; the rule applies to continuous noise
        remark = None if method.window == "boxcar" else leakage_remark(frf_set, method.window)
    summary = [f"{averaged}: {frf_set.averages}, df {_step_hz(frf_set):.6g} Hz"]
    if record.sample_rate_hz == 1.0:
        summary.append("sample_rate_hz is 1: if the sample rate is unknown, read Hz as cycles per sample")
    return MeasuredFrf(frf_set, () if remark is None else (remark,), tuple(summary))


def _step_hz(frf_set: FrfSet) -> float:
    f = frf_set.frequency_hz
    return float(f[1] - f[0]) if f.size > 1 else float(f[0])


def _from_hits(records: Sequence[TimeRecord], method: Hits, description: RecordsFile, labels: FrfLabels) -> MeasuredFrf:
    sets, remarks, summary, single = [], [], [], []
    several = len({record.inputs for record in records}) > 1
    for inputs in dict.fromkeys(record.inputs for record in records):
        hits = []
        for record in records:
            if record.inputs == inputs:
                found, rejected = _single_hits(record, method)
                hits += found
                remarks += [f"{record.source}: {text}" for text in rejected]
        if method.block is None and all(double_hit(f[:, 0], method.double_hit_level) is not None for f, _ in hits):
            where = next(record.source for record in records if record.inputs == inputs)
            raise ValueError(
                f"{where} holds more than one hit: expected method.block, the samples of each, to separate them"
            )
        where = f"input '{inputs[0]}': " if several else ""
        with error_location(where.removesuffix(": ")) if several else nullcontext():
            test = _hit_test(hits, method, description, {**labels, "inputs": inputs})
        remarks += [f"{where}hit {number} is rejected: {reason}" for number, reason in test.rejected.items()]
        remarks += [where + remark for remark in test.remarks]
        sets.append(test.frf_set)
        single += test.hits or [test.frf_set]
        summary.append(_hits_used(test, f"hits at '{inputs[0]}'" if several else "hits", description))
    several = len(single) > len(sets)
    return MeasuredFrf(stack_inputs(sets), tuple(remarks), tuple(summary), tuple(single) if several else ())


def _hits_used(test: HitTest, what: str, description: RecordsFile) -> str:
    unit = "" if description.forces.unit == UNKNOWN else f" {description.forces.unit or 'N'}"
    low, high = (f"{f:.3g}" for f in (min(test.peak_force), max(test.peak_force)))
    return (
        f"{what}: {len(test.accepted)} of {len(test.accepted) + len(test.rejected)} used, peak force"
        f" {low if low == high else f'{low} to {high}'}{unit}, df {_step_hz(test.frf_set):.6g} Hz"
    )


def _single_hits(record: TimeRecord, method: Hits) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[str, ...]]:
    if method.block is None:
        return [(record.force, record.response)], ()
    with error_location(record.source):
        starts, rejected = find_hits(
            record.force, record.sample_rate_hz, block=method.block, pre_trigger_s=method.pre_trigger_s,
            trigger=method.trigger,
        )  # fmt: skip
    return list(cut_hits(record.force, record.response, starts, method.block)), rejected


def _hit_test(
    hits: Sequence[tuple[np.ndarray, np.ndarray]], method: Hits, description: RecordsFile, labels: FrfLabels
) -> HitTest:
    rate = description.sample_rate_hz
    decay = method.decay_1_s or 0.0
    if method.end_level is not None:
        decay = decay_of_end_level(method.end_level, hits[0][0].shape[0] / rate)
    return estimate_frf_from_hits(
        hits, rate, decay_1_s=decay, force_window_s=method.force_window_s, double_hit_level=method.double_hit_level,
        force_full_scale=description.forces.full_scale, response_full_scale=description.responses.full_scale,
        estimator=method.estimator, **labels,
    )  # fmt: skip


def _records(description: RecordsFile, path: Path) -> tuple[TimeRecord, ...]:
    with error_location(str(path)):
        unit = _unit(description)
    inputs, outputs = (point_names(c.dofs, len(c.numbers)) for c in (description.forces, description.responses))
    records = []
    for number, record in enumerate(description.record, 1):
        with error_location(f"{path}: record number {number}"):
            file = data_path(record, description.public, path.parent)
            rate = description.sample_rate_hz
            force, response = (
                read_columns(file, channels.variable or record.variable, channels.numbers, rate) * channels.factors
                for channels in (description.forces, description.responses)
            )
            if force.shape[0] != response.shape[0]:
                raise ValueError(
                    f"force has {force.shape[0]} samples and response {response.shape[0]}, expected the same number"
                )
            if file.suffix.lower() in (".uff", ".unv") and unit != UNKNOWN:
                _check_units(file, description, unit)
        here = inputs if record.input is None else (record.input,)
        records.append(TimeRecord(force, response, description.sample_rate_hz, here, outputs, unit, str(file)))
    return tuple(records)


def _check_units(file: Path, description: RecordsFile, unit: str) -> None:
    """Raise ValueError where a universal file states another unit of a response over a force, unless by factors."""
    forces, responses, labels = description.forces, description.responses, read_time_histories(file)[2]
    if "factors" in forces.model_fields_set | responses.model_fields_set:
        return
    for force, response in itertools.product(forces.numbers, responses.numbers):
        found = unit_over(labels[response - 1], labels[force - 1])
        try:
            same = same_unit(found, unit, description.kind)
        except ValueError:  # not stated, or of a moment
            continue
        if not same:
            raise ValueError(
                f"{file}: column {response} over column {force} is in {found}, expected {unit}: state unit of both, or"
                " factors"
            )


def data_path(data: DataFile, public: PublicData | None, folder: Path) -> Path:
    """Path of a file of a description in a folder, or of published data in the folder named by `JAXMB_DATA`.

    Raises:
        InputError: the variable is not set, or there is no such file there; the message names the source of the data.
    """
    if data.public is None or public is None:
        return folder / (data.file or "")
    known = os.environ.get(DATA_FOLDER)
    path = Path(known or "") / data.public
    if known and path.is_file():
        return path
    reason = f"there is no {path}" if known else f"the environment variable {DATA_FOLDER} is not set"
    raise InputError(
        f"{data.public} is public data that do not come with jaxmb, and {reason}: expected {public.file} of"
        f" {public.repository} at commit {public.commit} as {data.public} in the folder that {DATA_FOLDER} names"
    )


def _unit(description: RecordsFile) -> str:
    """Unit of a response over a force; ValueError where it is not that of the kind."""
    force, response = description.forces.unit, description.responses.unit
    if UNKNOWN in (force, response):
        return UNKNOWN
    unit = unit_over(response or SI_UNITS[description.kind].removesuffix("/N"), force or "N")
    unit_scale(unit, description.kind)
    return unit


def measured_frf(name_or_path: str | os.PathLike[str], folder: Path | None = None) -> MeasuredFrf:
    """FRFs, with remarks, from a file of FRFs, a TOML file that describes time records, or a built-in measurement.

    Args:
        name_or_path: "hammer.uff", "hammer.toml", "daisy-subframe".
        folder: base of a relative path; the current directory where not given.

    Raises:
        InputError: it is none of these, or its content is invalid; the message names the location.
    """
    text = os.fspath(name_or_path)
    path = Path(text) if folder is None else folder / text
    if text in measurement_names():
        return estimate_of_records(text)
    if path.suffix.lower() == ".toml":
        return estimate_of_records(path)
    if path.suffix.lower() not in FRF_READERS:
        names = ", ".join(measurement_names())
        raise InputError(f"{path}: expected a file ending in {', '.join(FRF_READERS)} or .toml, or one of {names}")
    return MeasuredFrf(*read_frf_and_remarks(path))


def in_stated_unit(frf_set: FrfSet, unit: str, file: str) -> FrfSet:
    """A set from `measured_frf` with the unit that the user states, numbers unchanged.

    Args:
        frf_set: of the file.
        unit: such as "g/N".
        file: name or path from which it was read.

    Raises:
        ValueError: the unit is not one of the set's kind, or the file states another one that is no default of its
            format.
    """
    unit_scale(unit, frf_set.kind)
    unstated = {UNKNOWN, SI_UNITS[frf_set.kind]} if Path(file).suffix.lower() in SI_BY_DEFAULT else {UNKNOWN}
    if frf_set.unit not in unstated and not same_unit(frf_set.unit, unit, frf_set.kind):
        raise ValueError(
            f"unit is '{unit}', but '{frf_set.source or file}' states {frf_set.unit}: expected that or none"
        )
    return dataclasses.replace(frf_set, unit=unit)

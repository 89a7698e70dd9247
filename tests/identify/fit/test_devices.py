"""A fit on eight devices, and in two processes, ends where it ends on one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import tomli_w

from jaxmb import native
from jaxmb.cli.console import PROCESS_LOST
from jaxmb.cli.run_study import LOST
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.uncertainty.monte_carlo import bootstrap, monte_carlo
from jaxmb.identify.fit.devices import (
    ADDRESS,
    COUNT,
    NUMBER,
    check_shared,
    from_first_process,
    is_first,
    join,
    replicated,
)
from jaxmb.identify.study.study import load_study
from tests.identify.arm import BRIEF, FREE, frf, study_of
from tests.identify.fit.spread_fit import found_in


def started(folder, **environment):
    """A process of `spread_fit`."""
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "tests.identify.fit.spread_fit", str(folder)],
        env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def printed(process):
    output, errors = process.communicate(timeout=120)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert lines, errors[-2000:]
    return json.loads(lines[0]), errors, process.returncode


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Alone, on eight devices, in two processes, and on three devices without the kernel, all at the same time."""
    folder = tmp_path_factory.mktemp("devices")
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count="
    together = {ADDRESS: f"127.0.0.1:{free_port()}", COUNT: "2"}
    processes = [
        started(folder / "eight", XLA_FLAGS=f"{flags}8"),
        *(started(folder / f"process {k}", **together, **{NUMBER: str(k)}) for k in range(2)),
        started(folder / "without the kernel", XLA_FLAGS=f"{flags}3", **{native.SETTING: "off"}),
    ]
    (folder / "alone").mkdir()
    return found_in(folder / "alone"), *(printed(process) for process in processes)


def same(others, alone):
    for kind, shared in (("points", False), ("postures", True)):
        same_fit(others[kind], alone[kind])
        assert (others[kind]["spread"], alone[kind]["spread"]) == (shared, False)


def same_fit(other, alone):
    np.testing.assert_allclose(other["u"], alone["u"], rtol=1e-10)
    assert other["cost"] == pytest.approx(alone["cost"], rel=1e-10)
    assert (other["search"], other["ends"]) == (alone["search"], alone["ends"])


def test_eight_devices(runs):
    alone, (eight, errors, code), *_ = runs
    assert code == 0, errors
    same(eight, alone)


def test_two_processes(runs):
    alone, _, (first, *_), (second, *_), _ = runs
    assert first == second
    same(first, alone)
    same_fit(first["simplex"], alone["simplex"])


def test_three_devices_where_jax_solves(runs):
    """To the digits that two ways to solve leave alike."""
    alone, (three, errors, code) = runs[0], runs[-1]
    assert code == 0, errors
    for kind, shared in (("points", False), ("postures", True)):
        np.testing.assert_allclose(three[kind]["u"], alone[kind]["u"], rtol=1e-8)
        assert three[kind]["spread"] == shared


def test_a_process_that_is_lost_ends_the_others_with_a_sentence(runs):
    _, errors, code = runs[2]
    assert code == PROCESS_LOST
    assert "jaxmb: another process of this run ended or cannot be reached: restart all of them, with --resume" in errors


def test_a_first_process_that_is_lost_ends_the_others_with_the_same_sentence():
    together = {ADDRESS: f"127.0.0.1:{free_port()}", COUNT: "2"}
    first, second = (
        subprocess.Popen(
            [sys.executable, "-m", "tests.identify.fit.lost_first"], env=os.environ | together | {NUMBER: str(k)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for k in range(2)
    )  # fmt: skip
    output, errors = second.communicate(timeout=50)
    first.communicate(timeout=10)
    assert first.returncode == 9
    assert output.splitlines()[-1] == "joined", errors
    assert second.returncode == PROCESS_LOST
    assert errors.splitlines()[-1].startswith(f"jaxmb: {LOST[:60]}")


def test_draws_are_shared_out_by_the_command(tmp_path):
    """All processes fit them together; the first one alone would wait for the others for ever."""
    study = {"machine": "arm.toml", "test": [frf(noise=0.01, noise_log_std=0.01)], "free": FREE} | BRIEF
    study_of(tmp_path, *study["test"])  # writes the machine
    (tmp_path / "arm-study.toml").write_text(tomli_w.dumps(study))
    alone = identify(load_study(tmp_path / "arm-study.toml"))
    together = {ADDRESS: f"127.0.0.1:{free_port()}", COUNT: "2"}
    command = [sys.executable, "-m", "jaxmb", "identify", str(tmp_path / "arm-study.toml"), "--distributed",
               "--out", str(tmp_path / "out"), "--draws", "3", "--bootstrap", "5"]  # fmt: skip
    processes = [
        subprocess.Popen(command, env=os.environ | together | {NUMBER: str(k)}, stderr=subprocess.PIPE, text=True)
        for k in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 0, errors
    truth = {name: parameter.value for name, parameter in alone.parameters.items()}
    for name, draws in (("draws", monte_carlo(alone.study, 3, truth=truth)), ("bootstrap", bootstrap(alone, 5))):
        with np.load(tmp_path / "out" / f"{name}.npz") as found:
            np.testing.assert_allclose(found["values"], draws.values, rtol=1e-6)
            np.testing.assert_allclose(found["std"], draws.std, rtol=1e-6)


@pytest.mark.parametrize(("number", "received_by"), [(signal.SIGINT, 0), (signal.SIGINT, 1), (signal.SIGTERM, 1)])
def test_a_signal_to_one_process_ends_all_and_keeps_the_state(tmp_path, number, received_by):
    """Even where the others wait in compiled code for the one that is interrupted."""
    study = {"machine": "arm.toml", "test": [frf(noise=0.01, noise_log_std=0.01)], "free": FREE}
    study_of(tmp_path, *study["test"])  # writes the machine
    (tmp_path / "arm-study.toml").write_text(tomli_w.dumps(study | {"rounds": 10_000, "least_rounds": 10_000}))
    together = {ADDRESS: f"127.0.0.1:{free_port()}", COUNT: "2"}
    command = [sys.executable, "-m", "jaxmb", "identify", str(tmp_path / "arm-study.toml"), "--distributed",
               "--out", str(tmp_path / "out")]  # fmt: skip
    processes = [
        subprocess.Popen(command, env=os.environ | together | {NUMBER: str(k)}, stderr=subprocess.PIPE, text=True)
        for k in range(2)
    ]
    state = tmp_path / "out" / "state.npz"
    while not state.exists() and all(process.poll() is None for process in processes):
        time.sleep(0.1)
    processes[received_by].send_signal(number)
    began = time.monotonic()
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert time.monotonic() - began < 5.0
    assert [process.returncode for process in processes] == [128 + number] * 2, errors
    assert errors[0].splitlines()[-1].startswith(f"jaxmb: interrupted: the state is saved in {state}; the same command")
    assert state.exists()


def test_one_process_alone_waits_for_nobody(tmp_path, monkeypatch):
    assert is_first()
    assert from_first_process(2.5) == 2.5
    check_shared(tmp_path / "none")
    if len(jax.devices()) == 1:
        assert replicated(runs) is runs
    for name in (ADDRESS, COUNT, NUMBER):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=r"cannot join a run .* expected to be started by SLURM or Open MPI, or with"):
        join()

from . import (
    deflections as deflections,
    estimation as estimation,
    fitting as fitting,
    laws as laws,
    maps as maps,
    plan as plan,
    report as report,
    results as results,
    studies as studies,
)
from .identify.assess.identify import identify as identify
from .identify.assess.result import Result as Result
from .identify.assess.saved import (
    load_result as load_result,
    write_result as write_result,
)
from .identify.assess.uncertainty.monte_carlo import (
    Draws as Draws,
    bootstrap as bootstrap,
    monte_carlo as monte_carlo,
    write_draws as write_draws,
)
from .identify.estimation.linear import (
    RecursiveEstimate as RecursiveEstimate,
    RecursiveLeastSquares as RecursiveLeastSquares,
    least_squares_estimate as least_squares_estimate,
    recursive_least_squares as recursive_least_squares,
    update_least_squares as update_least_squares,
)
from .identify.estimation.reduction import (
    EssentialParameters as EssentialParameters,
    essential_parameters as essential_parameters,
)
from .identify.parameters.model_parameters import (
    parameters as parameters,
    set_parameters as set_parameters,
)
from .identify.plan.exciting_motion import (
    ExcitingMotion as ExcitingMotion,
    exciting_motion as exciting_motion,
)
from .identify.plan.inspection import (
    Inspection as Inspection,
    inspect as inspect,
)
from .identify.regression.base_parameters import (
    BaseParameters as BaseParameters,
    base_parameters as base_parameters,
    minimum_norm_values as minimum_norm_values,
    standard_values as standard_values,
    without_known as without_known,
)
from .identify.regression.torque_regressor import (
    CurrentRun as CurrentRun,
    DriveGain as DriveGain,
    drive_gains as drive_gains,
    regressor_names as regressor_names,
    stacked_torque_regressor as stacked_torque_regressor,
    torque_regressor as torque_regressor,
)
from .identify.study.format.study_format import study_names as study_names
from .identify.study.pure_functions import (
    LogDensity as LogDensity,
    log_density as log_density,
    residual as residual,
)
from .identify.study.study import (
    Study as Study,
    load_study as load_study,
    make_study as make_study,
)
from .io.validation import InputError as InputError
from .machine.build import Model as Model
from .machine.file import (
    load_machine as load_machine,
    machine_names as machine_names,
    write_machine as write_machine,
)
from .machine.khalil import machine_from_tables as machine_from_tables
from .machine.schema import Machine as Machine
from .machine.tables import machine_from_dh as machine_from_dh
from .machine.urdf import write_urdf as write_urdf
from .measurement.files.frf_file import (
    read_frf as read_frf,
    write_frf as write_frf,
)
from .measurement.frf_set import (
    FrfSet as FrfSet,
    as_kind as as_kind,
    in_band as in_band,
    select_channels as select_channels,
    select_lines as select_lines,
    to_si as to_si,
)
from .measurement.modal.analysis import (
    ModalAnalysis as ModalAnalysis,
    modal_analysis as modal_analysis,
)
from .measurement.modal.data import (
    cmif as cmif,
    frac as frac,
    modal_mass as modal_mass,
    modal_phase_collinearity as modal_phase_collinearity,
    modal_phase_deviation as modal_phase_deviation,
)
from .measurement.modal.model import (
    ModalModel as ModalModel,
    synthesize as synthesize,
)
from .measurement.modal_file import write_modal_model as write_modal_model
from .measurement.motion.csv_motion import (
    read_described as read_described,
    read_motion as read_motion,
    write_motion as write_motion,
)
from .measurement.motion.estimate import KalmanMotion as KalmanMotion, kalman_motion as kalman_motion
from .measurement.motion.record import MotionRecord as MotionRecord
from .measurement.reciprocity import (
    stack_inputs as stack_inputs,
    symmetrize as symmetrize,
    unsymmetry as unsymmetry,
)
from .measurement.records.file import (
    frf_of_records as frf_of_records,
    measurement_names as measurement_names,
    read_records as read_records,
)
from .measurement.records.impacts import (
    cut_hits as cut_hits,
    estimate_frf_from_hits as estimate_frf_from_hits,
    find_hits as find_hits,
)
from .measurement.records.time_records import (
    estimate_frf as estimate_frf,
    estimate_periodic_frf as estimate_periodic_frf,
)
from .mechanics.dynamics import (
    gravity_effort as gravity_effort,
    inverse_dynamics as inverse_dynamics,
    mass_matrix as mass_matrix,
)
from .mechanics.equilibrium import static_equilibrium as static_equilibrium
from .mechanics.forward import (
    Trajectory as Trajectory,
    actuator_effort as actuator_effort,
    forward_dynamics as forward_dynamics,
    simulate_motion as simulate_motion,
)
from .mechanics.kinematics import (
    coordinates as coordinates,
    elastic_coordinates as elastic_coordinates,
    frame_jacobian as frame_jacobian,
    frame_pose as frame_pose,
    frames as frames,
    reference_posture as reference_posture,
)
from .mechanics.loops import (
    independent_coordinates as independent_coordinates,
    motion_map as motion_map,
)
from .mechanics.mjcf import write_mjcf as write_mjcf
from .mechanics.postures import (
    build_model as build_model,
    close_loops as close_loops,
    posture as posture,
)
from .mechanics.tangent import (
    Tangent as Tangent,
    linearize as linearize,
    linearize_moving as linearize_moving,
)
from .response.frf import (
    Sensor as Sensor,
    convert_frf as convert_frf,
    frf as frf,
    frf_finite_force as frf_finite_force,
    response_rows as response_rows,
)
from .response.hits import (
    Softening as Softening,
    record_hits as record_hits,
)
from .response.modal import (
    Modes as Modes,
    energy_shares as energy_shares,
    mac as mac,
    modes as modes,
    spring_matrices as spring_matrices,
    spring_names as spring_names,
    undamped_modes as undamped_modes,
    with_modal_damping as with_modal_damping,
)
from .response.reduction import reduce_motion as reduce_motion, reduced_frf as reduced_frf
from .response.state_space import (
    ReducedStateSpace as ReducedStateSpace,
    StateSpace as StateSpace,
    reduce_state_space as reduce_state_space,
    state_space as state_space,
    write_state_space as write_state_space,
)
from .response.static import (
    cartesian_stiffness as cartesian_stiffness,
    compensate as compensate,
    deflection as deflection,
)

__version__: str

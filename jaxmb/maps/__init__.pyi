from .kinetostatic.characteristic_length import characteristic_length as characteristic_length
from .kinetostatic.dexterity import (
    DIRECTIONS as DIRECTIONS,
    dexterity as dexterity,
    inverse_condition as inverse_condition,
    normalized_jacobian as normalized_jacobian,
)
from .kinetostatic.load_response import (
    load_influence as load_influence,
    principal_stiffness as principal_stiffness,
    stiffness_along as stiffness_along,
    translational_compliance as translational_compliance,
)
from .kinetostatic.posture_maps import (
    PostureMap as PostureMap,
    posture_maps as posture_maps,
)
from .kinetostatic.posture_quantities import (
    QUANTITIES as QUANTITIES,
    MapSettings as MapSettings,
    posture_quantities as posture_quantities,
)
from .map_file import (
    modal_maps_json as modal_maps_json,
    posture_maps_json as posture_maps_json,
)
from .modal.identified_machine import (
    Identified as Identified,
    identified as identified,
    load_identified as load_identified,
)
from .modal.modal_maps import (
    ModalMap as ModalMap,
    ModalMaps as ModalMaps,
    modal_maps as modal_maps,
)
from .modal.modal_quantities import (
    MODAL_QUANTITIES as MODAL_QUANTITIES,
    ModalQuantities as ModalQuantities,
    modal_quantities as modal_quantities,
)
from .placement.placement import (
    Placement as Placement,
    PlacementResult as PlacementResult,
    place_task as place_task,
)
from .placement.tool_path import (
    ToolPath as ToolPath,
    placed_path as placed_path,
)
from .postures.workspace_grid import (
    Postures as Postures,
    postures_along as postures_along,
    postures_over as postures_over,
)
from .zones import (
    Zone as Zone,
    find_zones as find_zones,
    largest_box as largest_box,
)

from .kinetostatic import (
    DIRECTIONS as DIRECTIONS,
    QUANTITIES as QUANTITIES,
    MapSettings as MapSettings,
    characteristic_length as characteristic_length,
    dexterity as dexterity,
    inverse_condition as inverse_condition,
    load_influence as load_influence,
    normalized_jacobian as normalized_jacobian,
    posture_quantities as posture_quantities,
    principal_stiffness as principal_stiffness,
    stiffness_along as stiffness_along,
    translational_compliance as translational_compliance,
)
from .kinetostatic_maps import (
    PostureMap as PostureMap,
    Zone as Zone,
    find_zones as find_zones,
    largest_box as largest_box,
    posture_maps as posture_maps,
    posture_maps_json as posture_maps_json,
)
from .modal import (
    Identified as Identified,
    ModalMap as ModalMap,
    ModalMaps as ModalMaps,
    identified as identified,
    load_identified as load_identified,
    modal_maps as modal_maps,
    modal_maps_json as modal_maps_json,
)
from .modal_properties import (
    MODAL_QUANTITIES as MODAL_QUANTITIES,
    ModalQuantities as ModalQuantities,
    modal_quantities as modal_quantities,
)
from .placement import (
    Placement as Placement,
    PlacementResult as PlacementResult,
    ToolPath as ToolPath,
    place_task as place_task,
    placed_path as placed_path,
)
from .workspace_grid import (
    Postures as Postures,
    postures_along as postures_along,
    postures_over as postures_over,
)

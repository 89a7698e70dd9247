"""Maps over the postures of a robot: dexterity, stiffness, modes; zones where they are good; placement of tasks.

The public names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy

if TYPE_CHECKING:
    from jaxmb.maps.kinetostatic.characteristic_length import characteristic_length
    from jaxmb.maps.kinetostatic.dexterity import DIRECTIONS, dexterity, inverse_condition, normalized_jacobian
    from jaxmb.maps.kinetostatic.load_response import (
        load_influence,
        principal_stiffness,
        stiffness_along,
        translational_compliance,
    )
    from jaxmb.maps.kinetostatic.posture_maps import PostureMap, posture_maps
    from jaxmb.maps.kinetostatic.posture_quantities import QUANTITIES, MapSettings, posture_quantities
    from jaxmb.maps.map_file import modal_maps_json, posture_maps_json
    from jaxmb.maps.modal.identified_machine import Identified, identified, load_identified
    from jaxmb.maps.modal.modal_maps import ModalMap, ModalMaps, modal_maps
    from jaxmb.maps.modal.modal_quantities import MODAL_QUANTITIES, ModalQuantities, modal_quantities
    from jaxmb.maps.placement.placement import Placement, PlacementResult, place_task
    from jaxmb.maps.placement.tool_path import ToolPath, placed_path
    from jaxmb.maps.postures.workspace_grid import Postures, postures_along, postures_over
    from jaxmb.maps.zones import Zone, find_zones, largest_box

__all__ = [
    "DIRECTIONS",
    "MODAL_QUANTITIES",
    "QUANTITIES",
    "Identified",
    "MapSettings",
    "ModalMap",
    "ModalMaps",
    "ModalQuantities",
    "Placement",
    "PlacementResult",
    "PostureMap",
    "Postures",
    "ToolPath",
    "Zone",
    "characteristic_length",
    "dexterity",
    "find_zones",
    "identified",
    "inverse_condition",
    "largest_box",
    "load_identified",
    "load_influence",
    "modal_maps",
    "modal_maps_json",
    "modal_quantities",
    "normalized_jacobian",
    "place_task",
    "placed_path",
    "posture_maps",
    "posture_maps_json",
    "posture_quantities",
    "postures_along",
    "postures_over",
    "principal_stiffness",
    "stiffness_along",
    "translational_compliance",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "DIRECTIONS": "jaxmb.maps.kinetostatic.dexterity",
        "MODAL_QUANTITIES": "jaxmb.maps.modal.modal_quantities",
        "QUANTITIES": "jaxmb.maps.kinetostatic.posture_quantities",
        "Identified": "jaxmb.maps.modal.identified_machine",
        "MapSettings": "jaxmb.maps.kinetostatic.posture_quantities",
        "ModalMap": "jaxmb.maps.modal.modal_maps",
        "ModalMaps": "jaxmb.maps.modal.modal_maps",
        "ModalQuantities": "jaxmb.maps.modal.modal_quantities",
        "Placement": "jaxmb.maps.placement.placement",
        "PlacementResult": "jaxmb.maps.placement.placement",
        "PostureMap": "jaxmb.maps.kinetostatic.posture_maps",
        "Postures": "jaxmb.maps.postures.workspace_grid",
        "ToolPath": "jaxmb.maps.placement.tool_path",
        "Zone": "jaxmb.maps.zones",
        "characteristic_length": "jaxmb.maps.kinetostatic.characteristic_length",
        "dexterity": "jaxmb.maps.kinetostatic.dexterity",
        "find_zones": "jaxmb.maps.zones",
        "identified": "jaxmb.maps.modal.identified_machine",
        "inverse_condition": "jaxmb.maps.kinetostatic.dexterity",
        "largest_box": "jaxmb.maps.zones",
        "load_identified": "jaxmb.maps.modal.identified_machine",
        "load_influence": "jaxmb.maps.kinetostatic.load_response",
        "modal_maps": "jaxmb.maps.modal.modal_maps",
        "modal_maps_json": "jaxmb.maps.map_file",
        "modal_quantities": "jaxmb.maps.modal.modal_quantities",
        "normalized_jacobian": "jaxmb.maps.kinetostatic.dexterity",
        "place_task": "jaxmb.maps.placement.placement",
        "placed_path": "jaxmb.maps.placement.tool_path",
        "posture_maps": "jaxmb.maps.kinetostatic.posture_maps",
        "posture_maps_json": "jaxmb.maps.map_file",
        "posture_quantities": "jaxmb.maps.kinetostatic.posture_quantities",
        "postures_along": "jaxmb.maps.postures.workspace_grid",
        "postures_over": "jaxmb.maps.postures.workspace_grid",
        "principal_stiffness": "jaxmb.maps.kinetostatic.load_response",
        "stiffness_along": "jaxmb.maps.kinetostatic.load_response",
        "translational_compliance": "jaxmb.maps.kinetostatic.load_response",
    },
)

from .maps.placement_plot import placement_figure as placement_figure
from .mode_shapes.animation import write_mode_animation as write_mode_animation
from .mode_shapes.structure_figure import (
    mode_shape_figures as mode_shape_figures,
    mode_shape_grid as mode_shape_grid,
)
from .modes.mac_figure import mac_panels as mac_panels
from .modes.mode_pairs import (
    ModePairs as ModePairs,
    measured_pairs as measured_pairs,
)
from .paper_tables import (
    in_order as in_order,
    mean_error as mean_error,
    modes_table as modes_table,
    parameters_table as parameters_table,
)
from .result_sections import (
    sections as sections,
    write_report as write_report,
)
from .section import Section as Section
from .style import (
    drawing as drawing,
    write_figure as write_figure,
)
from .terminal import on_terminal as on_terminal

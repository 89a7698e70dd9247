from .modal_maps import placement_chart as placement_chart
from .modes import (
    ModePairs as ModePairs,
    mac_panels as mac_panels,
    measured_pairs as measured_pairs,
)
from .pick import (
    PolePicker as PolePicker,
    pick_poles as pick_poles,
)
from .rendering import (
    drawing as drawing,
    figure_of as figure_of,
    mode_shape_figures as mode_shape_figures,
    mode_shape_grid as mode_shape_grid,
    write_figure as write_figure,
    write_mode_animation as write_mode_animation,
)
from .result_page import result_html as result_html
from .result_sections import (
    sections as sections,
    write_report as write_report,
)
from .section import Section as Section
from .terminal import on_terminal as on_terminal

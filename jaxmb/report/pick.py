"""Poles selected with the pointer on a stabilization chart, in an interactive figure of matplotlib."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backend_bases import Event, MouseEvent
from matplotlib.backends.registry import BackendFilter, backend_registry
from matplotlib.figure import Figure

from jaxmb.identify.study.format.vibration_format import ModalPart
from jaxmb.io.files import one_line, write_atomically
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.modal.analysis import Method, ModalAnalysis, modal_analysis, reselected
from jaxmb.measurement.modal.data import distinguishable
from jaxmb.measurement.modal.model import ModalModel
from jaxmb.measurement.modal.stabilization import Chosen, StabilizationChart, same_mode
from jaxmb.report.charts import ALERT, FITTED, MEASURED, Axis, Line, Panel, Rule
from jaxmb.report.modal import Comparison, automac_chart, cmif_chart, pole_rules, stabilization_chart, synthesized
from jaxmb.report.rendering import draw_panel, drawing, handle, title_size

REACH = 9.0
"""Largest distance from the pointer to the pole that it selects, points (1/72 inch)."""
SIZE = (13.0, 7.6)
"""Width and height of the figure, inches."""
ROOM = {"chart": (0.06, 0.35, 0.53, 0.47), "cmif": (0.06, 0.09, 0.53, 0.22), "response": (0.68, 0.6, 0.3, 0.22),
        "automac": (0.73, 0.1, 0.22, 0.376)}  # fmt: skip
"""Left, bottom, width and height of the axes, as parts of the figure."""
HELP = (
    "Click a pole: select its mode, or drop it. Drag from one pole to another: merge them into one mode."
    " Click the response: the next one. Close the window when done."
)
NO_WINDOW = (
    "poles are picked in a window, and matplotlib has none here (backend {}): expected a display and a toolkit such as"
    " Tk or Qt, or in a notebook `%matplotlib widget` (package ipympl) and jaxmb.report.pick_poles"
)


class PolePicker:
    """Selection of poles on a stabilization chart, with the modes that follow from it.

    A click on a pole selects its mode, or drops it; the pointer dragged from one pole to another merges both into one
    mode. Synthesis, residual and AutoMAC follow. Errors of the analysis leave the selection as it was.
    """

    def __init__(self, figure: Figure, name: str, measured: FrfSet, settings: ModalPart) -> None:
        """Draw the chart in an empty figure.

        Args:
            figure: its canvas gives the events.
            name: of the measurement.
            measured: FRFs.
            settings: options of the analysis; its chosen poles are the first selection, or else the stable ones.

        Raises:
            ValueError: see `modal_analysis`.
        """
        self.figure, self.name, self.measured, self.settings = figure, name, measured, settings
        items = settings.chosen_hz
        self.found = modal_analysis(
            measured, settings.band_hz, settings.max_order, settings.method, settings.references,
            chosen="stable" if items is None else items,
        )  # fmt: skip
        starts = enumerate(self.found.started_from.tolist())
        self.groups = [[start] if items is None else self._poles(items[k], start) for k, start in starts]
        """Poles of the chart by selected mode."""
        self.message, self.response = "", 0
        self._pressed: int | None = None
        figure.canvas.mpl_connect("button_press_event", self._press)
        figure.canvas.mpl_connect("button_release_event", self._release)
        self._axes = {key: figure.add_axes(room) for key, room in ROOM.items()}
        self._axes["cmif"].sharex(self._axes["chart"])
        self._draw()

    @property
    def analysis(self) -> ModalAnalysis | None:
        """Modal analysis of the selected poles; None if none is selected."""
        return self.found if self.groups else None

    @property
    def chosen(self) -> tuple[Chosen, ...]:
        """The selection as `chosen` of `modal_analysis`, by ascending frequency."""
        return _chosen(self.found.chart, self.groups)

    def toml(self) -> str:
        """The selection as TOML, which reproduces the analysis: the table `modal` of an FRF test."""
        given = self.settings.model_dump(exclude_unset=True, exclude_none=True, exclude={"chosen_hz"})
        source = "".join(c for c in one_line(self.measured.source) if c.isprintable())
        source = f" in {source}" if source else ""
        lines = [
            f"# Poles selected by hand{source}. The same modes again: jaxmb modal FILE --poles-hz THIS_FILE",
            "# In a study this is `modal` of the [[test]] with the same FRFs.",
            "[modal]",
            *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in given.items()),
            "chosen_hz = [  # order and frequency of a pole; several in a list are one mode",
            *(f"    {_listed(item)}," for item in self.chosen),
            "]",
        ]
        return "\n".join(lines) + "\n"

    def write(self, path: str | Path) -> None:
        """Write the selection as TOML."""
        write_atomically(Path(path), self.toml().encode())

    def _poles(self, item: Chosen, start: int) -> list[int]:
        """Poles of the chart that an item of a selection names."""
        chart = self.found.chart
        if not (isinstance(item, Sequence) and isinstance(item[0], Sequence)):
            return [start]
        pairs = [pair for pair in item if isinstance(pair, Sequence)]
        off = [np.abs(chart.frequency_hz - hz) + 1e9 * (chart.order != order) for order, hz in pairs]
        return [int(np.argmin(each)) for each in off]

    def _nearest(self, event: MouseEvent) -> int | None:
        """The pole at the pointer."""
        chart, axes = self.found.chart, self._axes["chart"]
        if event.inaxes is not axes or not chart.order.size:
            return None
        at = axes.transData.transform(np.column_stack([chart.frequency_hz, chart.order]))
        distance = np.hypot(at[:, 0] - event.x, at[:, 1] - event.y)
        nearest = int(np.argmin(distance))
        return nearest if distance[nearest] <= REACH * self.figure.dpi / 72.0 else None

    def _press(self, event: Event) -> None:
        zooms_or_pans = getattr(getattr(self.figure.canvas, "toolbar", None), "mode", "")
        if isinstance(event, MouseEvent) and event.button == 1 and not zooms_or_pans:
            self._pressed = self._nearest(event)
            if event.inaxes is self._axes["response"]:
                self.response += 1
                self._draw()

    def _release(self, event: Event) -> None:
        if isinstance(event, MouseEvent) and event.button == 1 and self._pressed is not None:
            first, self._pressed = self._pressed, None
            last = self._nearest(event)
            if last is not None:
                self._change(first, last)

    def _change(self, first: int, last: int) -> None:
        """Select or drop the mode of a pole, or merge the modes of two."""
        chart, rule = self.found.chart, self.found.options["rule"]
        of = [next((g for g in self.groups if same_mode(chart, np.array(g), rule)[p]), None) for p in (first, last)]
        others = [group for group in self.groups if not any(group is each for each in of)]
        merged = [*dict.fromkeys([*(of[0] or [first]), *(of[1] or [last])])]
        if first == last:
            self._select(others if of[0] is not None else [*self.groups, [first]])
        elif of[0] is not None and of[0] is of[1]:
            self._say("both poles are estimates of one selected mode already")
        else:
            self._select([*others, merged])

    def _select(self, groups: list[list[int]]) -> None:
        """Change the selection, analyse it and draw the result; an impossible selection is refused with a message."""
        self._say("computing ...")
        message = ""
        try:
            if groups:
                self.found = reselected(self.measured, self.found, _chosen(self.found.chart, groups))
                lost = len(groups) - self.found.frequency_hz.size
                message = (
                    f"{lost} of {len(groups)} selected poles are no modes of the band when refined" if lost else ""
                )
            self.groups = groups
        except ValueError as error:
            message = str(error)
        self.message = message
        self._draw()

    def _say(self, message: str) -> None:
        self.message = message
        with drawing():
            self._heading()
        self.figure.canvas.draw_idle()
        self.figure.canvas.flush_events()

    def _heading(self) -> None:
        for text in [*self.figure.texts]:
            text.remove()
        count, chart = len(self.groups), self.found.chart
        low, high = self.found.options["band_hz"]
        title = f"{self.name}: {count} {'mode' if count == 1 else 'modes'} selected from {low:.4g} to {high:.4g} Hz"
        if not chart.order.size:
            title += "; the chart has no poles"
        for y, text, size, color in (
            (0.965, title, 11, "black"),
            (0.935, HELP, 8, "0.35"),
            (0.905, self.message, 8, ALERT),
        ):
            self.figure.text(ROOM["chart"][0], y, text, fontsize=size, color=color, va="center")

    def _draw(self) -> None:
        """Draw chart, residual, one response and AutoMAC of the selection."""
        chart, axes = self.found.chart, self._axes["chart"]
        zoom = {"xlim": self.found.options["band_hz"]}
        if axes.has_data():
            zoom = {"xlim": axes.get_xlim(), "ylim": axes.get_ylim()}
        poles = stabilization_chart(self.name, self.found, self.measured).panels[0]
        rings = [Line(chart.frequency_hz[g], chart.order[g], "selected", ALERT, 1.2, "-", "o", 7.0, filled=False)
                 for g in self.groups]  # fmt: skip
        marks = [mark for mark in poles.marks if self.groups or not isinstance(mark, Rule)]
        panels = {"chart": Panel((*rings, *marks), dataclasses.replace(poles.x, label=""), poles.y)}
        if self.groups:
            shown = dataclasses.replace(self.found, model=_selected_only(self.found.model))
            compared = synthesized(shown, self.measured)
            measured, left = compared.measured, compared.measured.frf - compared.synthesized.frf
            shown = dataclasses.replace(shown, line_hz=measured.frequency_hz, left=left)
            panels["cmif"] = cmif_chart(self.name, shown, self.measured).panels[0]
            panels["response"] = self._response_panel(compared)
            if distinguishable(len(self.found.points), self.found.frequency_hz.size):
                panels["automac"] = self._mac_panel()
        with drawing():
            for key, own in self._axes.items():
                own.clear()
                own.axis(key in panels)
                if key in panels:
                    width = ROOM[key][2] * SIZE[0]
                    draw_panel(own, panels[key], width, title_size([panels[key]], width))
                    own.tick_params(
                        labelsize=7.0, grid_color="0.9", grid_linewidth=0.5
                    )  # drawn later, in another style
                    own.set(xlabel=panels[key].x.label, ylabel=panels[key].y.label)
            if "automac" not in panels and self.groups:
                self._axes["automac"].text(0.5, 0.5, "AutoMAC needs as many outputs as modes", ha="center")
            axes.set(**zoom)
            for legend in [*self.figure.legends]:
                legend.remove()
            shown = [mark for panel in panels.values() for mark in panel.marks if getattr(mark, "label", "")]
            entries = {str(entry.get_label()): entry for entry in map(handle, shown)}
            self.figure.legend(handles=[*entries.values()], loc="upper left", bbox_to_anchor=(0.055, 0.9), ncols=6)
            self._heading()
        self.figure.canvas.draw_idle()

    def _response_panel(self, compared: Comparison) -> Panel:
        """Magnitude of one response, measured and synthesized, those with the worst agreement first."""
        ranked = np.argsort(np.nan_to_num(compared.frac, nan=2.0), axis=None)
        o, i = np.unravel_index(ranked[self.response % ranked.size], compared.frac.shape)
        measured, f = compared.measured, compared.measured.frequency_hz
        curves = [
            Line(f, np.abs(measured.frf[:, o, i]), "measured", MEASURED, 2.2),
            Line(f, np.abs(compared.synthesized.frf[:, o, i]), "synthesized", FITTED, 0.9),
        ]
        place = f"{self.response % ranked.size + 1} of {ranked.size}, the worst first"
        return Panel(
            (*pole_rules(self.found), *curves),
            Axis("frequency (Hz)"),
            Axis(f"|H| ({measured.unit})", log=True),
            f"{measured.outputs[o]} / {measured.inputs[i]}: FRAC {compared.frac[o, i]:.4f} ({place})",
        )

    def _mac_panel(self) -> Panel:
        """AutoMAC, with frequency and damping of each mode."""
        panel, damping = automac_chart(self.name, self.found).panels[0], 100.0 * self.found.damping_ratio
        names = [f"{name}, {zeta:.2g} %" for name, zeta in zip(panel.y.names or (), damping, strict=False)]
        y = dataclasses.replace(panel.y, label="modes (Hz, damping)", names=names)
        return dataclasses.replace(panel, y=y, title="AutoMAC")


def _selected_only(model: ModalModel) -> ModalModel:
    """The model without the other modes in the band, which are fitted beside the selected ones."""
    low, high = model.band_hz
    frequency_hz = np.abs(model.beyond_eigenvalue) / (2 * np.pi)
    kept = (frequency_hz < low) | (frequency_hz > high)
    return dataclasses.replace(
        model,
        beyond_eigenvalue=model.beyond_eigenvalue[kept],
        beyond_shape=model.beyond_shape[:, kept],
        beyond_participation=model.beyond_participation[kept],
    )


def _chosen(chart: StabilizationChart, groups: Sequence[Sequence[int]]) -> tuple[Chosen, ...]:
    """Selected poles by order and frequency, sorted by frequency."""
    pairs = [[(int(chart.order[p]), float(f"{chart.frequency_hz[p]:.9g}")) for p in group] for group in groups]
    return tuple(tuple(own) if len(own) > 1 else own[0] for own in sorted(pairs, key=lambda own: own[0][1]))


def _listed(item: Chosen | tuple[int, float]) -> str:
    return f"[{', '.join(map(_listed, item))}]" if isinstance(item, Sequence) else repr(item)


def pick_poles(
    frf_set: FrfSet,
    band_hz: tuple[float, float] | None = None,
    max_order: int = 60,
    method: Method = "polyreference",
    references: Sequence[str] | None = None,
    chosen: Sequence[Chosen] | None = None,
    figure: Figure | None = None,
    name: str = "poles",
) -> PolePicker:
    """Stabilization chart in an interactive figure, on which poles are selected with the pointer.

    In a notebook run `%matplotlib widget` before (package ipympl); elsewhere `matplotlib.pyplot.show()` opens the
    window. `analysis`, `chosen`, `toml()` and `write(path)` of the picker follow the selection.

    Args:
        frf_set: as of `modal_analysis`, like the next four.
        band_hz: band to analyse.
        max_order: largest order.
        method: of the estimator.
        references: inputs to use.
        chosen: first selection, as of `modal_analysis`; the stable poles if None.
        figure: empty, to draw in; a new one of pyplot if None.
        name: of the measurement.

    Raises:
        ValueError: an option is invalid, or no figure is given and matplotlib has no window.
    """
    settings = ModalPart.model_construct(
        band_hz=band_hz, max_order=max_order, method=method, references=None if references is None else (*references,),
        chosen_hz=None if chosen is None else (*chosen,),
    )  # fmt: skip
    return PolePicker(window(name) if figure is None else figure, name, frf_set, settings)


def window(name: str) -> Figure:
    """An empty figure of pyplot in a window.

    Raises:
        ValueError: matplotlib has no window.
    """
    backend = matplotlib.get_backend()
    if backend.lower() in backend_registry.list_builtin(BackendFilter.NON_INTERACTIVE):
        raise ValueError(NO_WINDOW.format(backend))
    from matplotlib import pyplot

    try:
        return pyplot.figure(name, figsize=SIZE)
    except (ImportError, RuntimeError) as error:  # a toolkit that is not installed
        raise ValueError(f"{NO_WINDOW.format(backend)}: {error}") from None

"""Tables and remarks of maps say what the numbers say."""

import dataclasses

import numpy as np
from rich.console import Console

from jaxmb.maps import MapSettings, ModalMap, ModalMaps, PostureMap, Postures, find_zones
from jaxmb.maps.modal import ModalMapSettings
from jaxmb.report.maps import posture_map_sections
from jaxmb.report.modal_maps import modal_map_sections
from jaxmb.report.section import pictures
from jaxmb.report.terminal import on_terminal

GRID = np.radians([0.0, 10.0, 20.0, 30.0])


def posture_map(values, threshold=0.4, length=1.0):
    postures = Postures(("q2",), (GRID,), (True,), np.zeros((4, 2)), ("q1", "q2"), np.zeros((4, 3)), "tool", {"q1": 0},
                        ("q2",), ("q1", "q2"))  # fmt: skip
    zones = find_zones(values, (GRID,), threshold, True, 2)
    settings = MapSettings(length, ("q1", "q2"))
    return {"dexterity": PostureMap("robot", "dexterity", values, "tool", postures, None, threshold, zones, settings)}


def text_of(sections):
    """What a terminal shows, runs of blanks as one."""
    console = Console(width=200)
    with console.capture() as captured:
        console.print(on_terminal(sections))
    return " ".join(captured.get().split())


def test_zones():
    sections = posture_map_sections(posture_map(np.array([0.1, 0.4, 0.5, 0.2])))
    said = text_of(sections)
    assert "dexterity of robot, length 1 m: zones of at least 0.4" in said
    assert "Z1 50.0 % 10 to 20 deg 10 to 20 deg 0.5000" in said
    assert [picture.name for picture in pictures(sections)] == ["dexterity-joints"]
    assert "no zone: the best posture has 0.3" in text_of(posture_map_sections(posture_map(np.full(4, 0.3))))
    assert "no posture has a value" in text_of(posture_map_sections(posture_map(np.full(4, np.nan))))


def test_a_length_at_the_end_of_its_search_is_remarked():
    values = np.array([0.1, 0.4, 0.5, 0.2])
    at_end = posture_map(values, length=1e-3)
    assert "length: 0.001 m is an end of the search" in text_of(posture_map_sections(at_end))
    assert "an end of the search" not in text_of(posture_map_sections(posture_map(values)))
    assert "an end of the search" not in text_of(posture_map_sections(at_end, length_given=True))


def test_least_and_greatest_values_with_what_is_known():
    places = np.array([[0.0, 0.0], [0.1, 0.0], [np.nan, np.nan]])
    postures = Postures(("tool.x",), (np.arange(3.0),), (False,), places, ("q1", "q2"), np.zeros((3, 3)), "tool", {},
                        ("q1", "q2"))  # fmt: skip
    values = np.array([[8.0], [10.0], [np.nan]])
    shown = ModalMap("frequency", "Hz", values, np.array([[0.4], [np.nan], [np.nan]]), {"stiffness.q1": 0.5})
    found = ModalMaps("robot", "tool", postures, {"frequency": shown}, None, ("damping.q2",),
                      ModalMapSettings(1, None, None, ("stiffness.q1", "damping.q2")))  # fmt: skip
    sections = modal_map_sections(found)
    said = text_of(sections)
    assert "robot: 2 postures" in said
    assert "frequency 1 (Hz) 8.000 0.4 10.00 unknown 5 %" in said
    assert [picture.name for picture in pictures(sections)] == ["frequency"]
    for sentence in (
        "1 of 3 positions are not reached from the start posture",
        "wrong by a factor of several: damping.q2",
        "frequency: stiffness.q1 is not identified, so that the standard deviation of 50 % of the values is unknown",
    ):
        assert sentence in said
    undamped = dataclasses.replace(shown, values=np.array([[0.0], [0.0], [np.nan]]), std=np.zeros((3, 1)))
    assert "0.000 0 0.000 0 unknown" in text_of(
        modal_map_sections(dataclasses.replace(found, maps={"damping": undamped}))
    )
    nothing = dataclasses.replace(shown, values=np.full((3, 1), np.nan), std=None, unknown={})
    assert "none" in text_of(modal_map_sections(dataclasses.replace(found, maps={"frequency": nothing})))

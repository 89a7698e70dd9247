"""Tests of all kinds."""

from jaxmb.identify.experiments.frf_test import FrfTest
from jaxmb.identify.experiments.modes_test import ModesTest

Test = FrfTest | ModesTest

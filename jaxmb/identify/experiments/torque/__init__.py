"""Torque tests: motion and torque of drives."""

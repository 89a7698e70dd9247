"""Figures of torque tests."""

"""Exciting motions for the identification of inertial and friction parameters."""

"""Motions that tell most of inertial and friction parameters."""

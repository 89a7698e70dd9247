"""Figures of mode shapes: the machine in space, at rest and displaced."""

"""Recorded motions with the torques of their drives."""

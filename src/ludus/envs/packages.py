"""Packages of environments that Ludus knows by name only: what to install and to import for an id."""

from __future__ import annotations

import importlib.util

PACKAGES: dict[str, tuple[str, ...]] = {
    "highway_env": ("highway-env", "highway-", "merge-", "roundabout-", "parking-", "intersection-", "racetrack-"),
    "flappy_bird_gymnasium": ("flappy-bird-gymnasium", "FlappyBird-"),
    "gymnasium_robotics": (
        "gymnasium-robotics", "Fetch", "Hand", "PointMaze", "AntMaze", "Adroit", "FrankaKitchen", "Maze2D",
    ),
    "panda_gym": ("panda-gym", "Panda"),
    "gym_pusht": ("gym-pusht", "gym_pusht/"),
    "gym_aloha": ("gym-aloha", "gym_aloha/"),
    "metaworld": ("metaworld", "Meta-World/"),
    "mo_gymnasium": ("mo-gymnasium", "mo-", "deep-sea-treasure-"),
    "popgym": ("popgym", "popgym-"),
    "miniwob": ("miniwob", "miniwob/"),
    "crafter": ("crafter", "Crafter"),
}  # fmt: skip
"""Module to import -> name of the package on the index, then how its ids begin."""


def remedy(module: str, package: str) -> str:
    """What to type so that the module's ids are known."""
    there = importlib.util.find_spec(module) is not None
    return f"add --import {module}" if there else f"pip install {package}, then add --import {module}"

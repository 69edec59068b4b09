"""Data sets of episodes on disk: read, checked, described and written in Minari's format."""

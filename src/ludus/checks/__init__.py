"""Checks of environments and configs: `ludus env check`, `ludus smoke`."""

"""Checks and measurements over everything there is: smoke tests, the vector contract, speed."""

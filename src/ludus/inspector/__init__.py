"""`ludus inspect`: a local web application over a folder of runs; it is never imported by what trains.

Reading order: server (what can be asked) -> runs, curves, settings (read from run folders) -> jobs (the process that
plays) -> worker -> recording, inside, dreams. The page itself is in static/.
"""

"""Reports of a run: a self-contained HTML page, Perfetto and SARIF files, a structured trace for tlparse.

`collect` turns an event log and the compiled callables into one plain dict; everything else renders that dict, so a
report can be made again from its JSON file (`kintsugi report run.json`).
"""

from .collect import collect

__all__ = ["collect"]

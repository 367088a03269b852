"""`kintsugi advise`: where to compile, and rewrites that were tried."""

from __future__ import annotations

import dataclasses

from .._diagnostics import where_to_compile
from .._rewrite import suggest_rewrites
from .bench import _load
from .common import OK, print_json


def run(target: str, *, inputs: str, as_json: bool) -> int:
    fn, args = _load(target, inputs)
    advice = where_to_compile(fn, *args)
    try:
        rewrites = suggest_rewrites(fn)(*args)
        refused = ""
    except ValueError as error:
        rewrites, refused = [], str(error)
    if as_json:
        print_json(
            {"where": dataclasses.asdict(advice), "rewrites": [dataclasses.asdict(r) for r in rewrites]}
        )
        return OK
    print(advice)
    if refused:
        print(refused)
    for rewrite in rewrites:
        verdict = "keeps the results:" if rewrite.accepted else f"refused: {rewrite.reason}"
        print(f"\nline {rewrite.line}: {rewrite.rule}: {verdict}")
        if rewrite.accepted:
            print(rewrite.source)
    return OK

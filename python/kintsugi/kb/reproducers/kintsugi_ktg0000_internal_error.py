"""internal-error: a check of Kintsugi's own fails; here it is made to fail when the first recording begins."""

import kintsugi


def around(run):
    kintsugi._C._fail_at("recorder")
    try:
        return run()
    finally:
        kintsugi._C._fail_at("")


def problem(x):
    return x * 2 + 1

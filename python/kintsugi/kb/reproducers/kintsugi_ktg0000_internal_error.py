"""internal-error: a check of Kintsugi's own fails; here it is made to fail when the first recording begins."""

import kintsugi


def around(run):
    kintsugi._C._fail_next_recording(True)
    try:
        return run()
    finally:
        kintsugi._C._fail_next_recording(False)


def problem(x):
    return x * 2 + 1

"""Calls: keywords that come and go, star-arguments, defaults, partial objects, nested compiled functions, exceptions
that leave the compiled function."""

from __future__ import annotations

from .family import Family, parts, rows

PRELUDE = """
class Problem(Exception):
    def __init__(self, text, *, code=0):
        super().__init__(text, code)
        self.code = code

class Stop(BaseException):
    pass

def spread(v, *rest, scale=1, mask=None, **more):
    if mask is not None:
        v = v * mask
    for j in rest:
        v = v + j
    return v * scale + len(more), sorted(more)

def optional(v, mask=None, scale=None):
    return v if mask is None else v * mask if scale is None else v * mask * scale

def only_positional(v, n=2, /, *, by=1):
    return v * n + by

def defaults(n, into=[]):
    into.append(n)
    return len(into)

def restore_calls():
    defaults.__defaults__[0].clear()
    only_positional.__defaults__, only_positional.__kwdefaults__ = (2,), {"by": 1}

class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
    def forward(self, v, mask=None, **kw):
        self.seen += 1
        return (v if mask is None else v * mask) + kw.get("shift", 0)

MASKED = Masked()
half = INNER(lambda v, *, by=0.5: v * by)
"""

TENSORS = rows("""
spread($v)[0]
spread($v, $i, scale=$i)[0]
spread($v, *[$i, $i], **({"mask": $v > 0} if $c else {}))[0]
spread($t, **({"a": 1, "b": 2} if $c else {"b": 1}))[0]
optional($v)
optional($v, mask=$v)
optional($v, scale=$i, mask=$v)
optional($v, **({"mask": $v} if $c else {}))
only_positional($v)
only_positional($v, $i, by=$i)
MASKED($v)
MASKED($v, mask=$v > 0)
MASKED($v, shift=$i)
MASKED($v, **kw)
half($v)
half($v, by=$i)
functools.partial(spread, scale=$i)($v, **({"z": 1} if $c else {}))[0]
($v if mask is None else $v * mask)
($v * kw.get("scale", 1))
torch.add(*[$v, $t], **({"alpha": $i} if $c else {}))
operator.methodcaller("clamp", min=$i)($v)
(lambda *a, **b: a[0] + len(a) + len(b))($v, $i, **kw)
""")

INTEGERS = rows("""
len(kw)
len(rest)
(0 if mask is None else 1)
sum(rest[:1])
defaults($i)
len(spread($v, **kw)[1])
(lambda *a, j=$i: len(a) + j)(*rest)
kw.get("extra", 2)
""")

SIMPLE = parts("""
log.append(sorted(kw.items(), key=lambda item: item[0]))
===
log.append(list(kw))
===
log.append((rest, mask is None))
===
log.append(kw)
===
kw["made"] = $i
===
kw.pop("extra", None)
===
log.append(spread($v, **kw, also=$i)[1])
===
log.append({**kw, "last": $i})
===
log.append([*rest, $i, *rest])
===
$1 = dict(kw, n=$i)
log.append(spread($v, $i, **$1))
===
def $1(v, *a, n=$i, **b):
    b.update(n=n)
    return v * n, a, b
log.append($1($v, *rest, **kw))
===
log.append(inspect.signature(optional).bind($v, mask=$i).arguments["mask"])
===
try:
    spread($v, scale=1, **{"scale": 2})
except TypeError as e:
    log.append(str(e))
===
try:
    only_positional(v=$v)
except TypeError as e:
    log.append(str(e))
===
try:
    optional($v, *rest, mask=$i)
except TypeError as e:
    log.append(str(e))
===
if $c:
    raise Problem("left", code=$i)
===
if $c:
    raise ValueError($s)
===
if $c:
    raise KeyError($i) from IndexError($i)
===
if $c:
    raise Stop($i)
===
if $c:
    raise ExceptionGroup("several", [ValueError($i), KeyError("k")])
===
if $c:
    $1 = ValueError($v)
    $1.add_note("noted %d" % $i)
    raise $1
===
try:
    raise Problem("inside", code=$i)
except Problem as e:
    log.append((e.args, e.code, vars(e)))
===
try:
    optional()
except TypeError as e:
    log.append((e.args, traceback.extract_tb(e.__traceback__)[-1].name))
===
try:
    raise ExceptionGroup("several", [ValueError($i), KeyError("k")])
except* ValueError as e:
    log.append(len(e.exceptions))
except* KeyError as e:
    log.append(str(e))
===
try:
    $raise
except Exception as e:
    log.append((type(e), e.args, e.__context__ is None, e.__traceback__.tb_lineno - sys._getframe().f_lineno))
===
$z = kw.get("scale", $s)
===
$z, *$1 = [*rest, $s]
log.append($1)
""")

NESTED = parts("""
if mask is not None:
    $block
===
if "extra" in kw:
    $block
else:
    $block
===
for $n in rest:
    $block
===
for $1, $2 in kw.items():
    log.append(($1, $2))
    $block
===
def $1(v, n=$i, *a, **b):
    $body
$r = $1($t, **({"n": $i} if $c else {}))
===
@INNER
def $1(v, n=$i):
    $body
$r = $1($t)
===
@INNER
def $1(v, n=1):
    $body
$r = $1($t, **({"n": $i} if $c else {}))
===
try:
    $block
except BaseException as e:
    log.append(type(e))
    raise
===
try:
    $block
finally:
    $block
    if $c:
        $raise
""")

RAISES = rows("""
raise Problem("p", code=k)
raise Problem("p") from ValueError("v")
raise Problem("p") from None
raise ValueError(x.sum())
raise ValueError
raise Stop
1 // (k - k)
torch.ones(2)[5]
optional()
int("none")
next(iter(()))
""")

BETWEEN = parts("""
optional.__defaults__ = (None, $d)
===
only_positional.__kwdefaults__ = {"by": $d}
===
only_positional.__defaults__ = ($d,)
===
MASKED.train(not MASKED.training)
===
MASKED.seen = torch.full((), 3.0)
===
MASKED.forward = lambda v, mask=None, **kw: v * 3
===
vars(MASKED).pop("forward", None)
""")

CALLS = Family(
    "calls",
    prelude=PRELUDE,
    tensors=TENSORS,
    integers=INTEGERS,
    raises=RAISES,
    simple=SIMPLE,
    nested=NESTED,
    between=BETWEEN,
)

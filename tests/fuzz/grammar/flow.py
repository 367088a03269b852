"""Control flow where it is rare: context managers entered in comprehensions, generators within them, closures that
share a cell, coroutines, decorators, walrus, star-targets, unpacking."""

from __future__ import annotations

from .family import Family, parts, rows

PRELUDE = """
EVENTS = []

def restore_flow():
    EVENTS.clear()

@contextlib.contextmanager
def entered(n):
    EVENTS.append(f"+{n}")
    try:
        yield n
    finally:
        EVENTS.append(f"-{n}")

@contextlib.asynccontextmanager
async def entered_later(n):
    EVENTS.append(f"a+{n}")
    try:
        yield n
    finally:
        EVENTS.append(f"a-{n}")

async def counting(n):
    for j in range(n):
        yield j

async def gathered(n, t):
    total = 0
    async with entered_later(n) as m:
        async for j in counting(n):
            total += j
    return t + total + m, [j async for j in counting(n) if j]

def within(n):
    with entered(n):
        return n * 2

def yielding_within(n):
    with entered(n):
        for j in range(n):
            yield j

class Scoped(contextlib.ContextDecorator):
    def __enter__(self):
        EVENTS.append("scope")
        return self
    def __exit__(self, *error):
        EVENTS.append(error[0] and error[0].__name__)

class Reentrant:
    def __init__(self):
        self.depth = 0
    def __enter__(self):
        self.depth += 1
        return self.depth
    def __exit__(self, kind, *rest):
        self.depth -= 1
        return kind is KeyError

REENTRANT = Reentrant()

def repeat(times):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            return [function(*args) for _ in range(times)]
        return wrapper
    return decorate

@repeat(2)
def noted(n):
    EVENTS.append(n)
    return n + 1

@contextlib.contextmanager
def transaction(table):
    saved = dict(table)
    try:
        yield table
    except ValueError:
        table.clear()
        table.update(saved)
        raise
"""

INTEGERS = rows("""
len(EVENTS)
within($d)
sum(within(j) for j in range($d))
sum(yielding_within($d))
noted($i)[1]
REENTRANT.depth
sum([(j := m) + 1 for m in range($d)])
""")

TENSORS = rows("""
finished(gathered($d, $t))[0]
sum([$v * within(j) for j in range($d)], $v)
[u for u in [$v, $t] if u is not None][-1]
next((u for u in ($v, $t) if u.sum() > 0), $v)
torch.stack([u + within(1) for u in $v])
torch.stack([p * q for p in $v[:1] for q in $v])[: x.shape[0]]
(lambda: (yield))() and $v
""")

SIMPLE = parts("""
with contextlib.ExitStack() as $1:
    [$1.enter_context(entered(j)) for j in range($k)]
    EVENTS.append("body")
===
with contextlib.ExitStack() as $1:
    log.append([$1.enter_context(section(log, "n" * j)) for j in range($d)])
===
with contextlib.ExitStack() as $1:
    $n = sum($1.enter_context(entered(j)) for j in range($d))
    EVENTS.append($n)
===
with contextlib.ExitStack() as $1:
    $2 = {j: $1.enter_context(entered(j)) for j in range($k)}
    $1.pop_all().close()
    log.append($2)
===
with contextlib.ExitStack() as $1:
    for $2 in range($k):
        $1.enter_context(entered($2))
        $1.callback(EVENTS.append, $2)
    $1.push(lambda *e: EVENTS.append(len(e)))
===
log.append([within(j) for j in range($k)])
===
log.append({j: within(j) for j in range($k)})
===
log.append([*yielding_within($d)])
===
log.append([j for j in yielding_within(3) if j != $i])
===
$1 = yielding_within(3)
next($1)
log.append(next($1))
$1.close()
log.append(len(EVENTS))
===
$1 = yielding_within(3)
next($1)
del $1
log.append(list(EVENTS))
===
log.append(any(j == 1 for j in yielding_within(3)))
===
log.append(next(j for j in yielding_within(3) if j >= $d % 3))
===
log.append([(p, q) for p in range($d) for q in range(p) if (p + q) % 2])
===
log.append([[within(p) for p in range(q)] for q in range($d)])
===
log.append(finished(gathered($d, $i)))
===
log.append(list(map(noted, [$i, $k])))
===
log.append([f() for f in [lambda: j for j in range($d)]])
===
log.append([f() for f in [lambda j=j: j for j in range($d)]])
===
@Scoped()
def $1(n):
    EVENTS.append(n)
    return n
$n = $1($i)
===
with REENTRANT as $n, REENTRANT as $1:
    log.append(($n, $1))
===
with REENTRANT as $n:
    {}["missing"]
log.append(REENTRANT.depth)
===
try:
    with transaction(TABLE):
        TABLE["k"] = $i
        if $c:
            raise ValueError("undone")
except ValueError as e:
    log.append((str(e), TABLE["k"]))
===
with contextlib.closing(yielding_within(2)) as $1:
    log.append(next($1))
===
with contextlib.nullcontext($i) as $n:
    log.append($n)
===
if ($1 := $i) > 1 and (($2 := $1 * 2) > 3):
    log.append($2)
===
log.append([$1 := $i, $1 + 1, $1 ** 2])
===
$1, ($2, *$3), *_ = $i, ($k, 2, 3), 4, 5
log.append(($1, $2, $3))
===
log.append([*range($d), *"ab", *{1: 2}])
===
log.append({**{"a": $i}, **TABLE, "z": 1}.get("a"))
===
$1 = [$i, $i, 3, 4]
$1[1:3] = []
$1 += ($k,)
del $1[0]
log.append($1)
===
$1 = [[0] * 2] * 2
$1[0][1] = $i
log.append($1)
===
$1 = $2 = [$i]
$1.append($v)
log.append($2)
===
def $1():
    $2 = 0
    def more(by):
        nonlocal $2
        $2 += by
        return $2
    return more, lambda: $2
$3, $4 = $1()
$3($i)
log.append($4())
===
def $1(n):
    try:
        return n
    finally:
        log.append("left")
$n = $1($i)
===
def $1(n):
    for j in range(3):
        try:
            if j == n:
                return j
            continue
        finally:
            log.append(j)
    return -1
$n = $1($i)
===
def $1(n):
    while True:
        try:
            n -= 1
            if n < 0:
                break
        except ValueError:
            pass
        else:
            log.append(n)
    return n
$n = $1($k)
===
def $1(n):
    return n if n < 2 else $1(n - 1) + $1(n - 2)
$n = $1($k + 2)
===
def $1(n, seen={}):
    if n not in seen:
        seen[n] = n * 2
    return len(seen)
$n = $1($i) + $1($k)
===
$1 = (j * j for j in range(4))
log.append((3 in [*itertools.islice($1, 2)], list($1)))
===
$1 = zip("ab", numbers(3))
log.append((list($1), next($1, None)))
===
$1 = iter([$i, $k, 3])
log.append([a + b for a, b in zip($1, $1)])
===
$1 = enumerate([$v, $t], start=$d)
log.append([j for j, _ in $1])
===
log.append(list(zip(*[(1, $i), (2, $k)])))
===
log.append("-".join(f"{j}" for j in range($d)).split("-"))
===
log.append("%s" % ($k,) + "a" * $d)
===
log.append(("abc" * 2)[:: -1 if $c else 1])
===
log.append(list(filter(lambda j: j % 2, [1, 2, $i])))
===
log.append([*itertools.pairwise([$i, $k, 3])])
===
log.append(list(itertools.chain.from_iterable([[j] * j for j in range($d)])))
===
log.append(collections.Counter("aab").most_common(1))
===
log.append(functools.reduce(lambda a, j: a * 2 + j, [$i, $k], 1))
===
log.append(eval("$k + 1"))
===
exec("EVENTS.append($d)")
===
log.append(list(sorted(set([$i, $k, 1]) | {2})))
===
log.append(sorted({"a": $i, "b": 2}.items(), key=lambda item: -item[1]))
===
log.append(locals().get("k", 0) + 1)
===
log.append(sys._getframe().f_code.co_name)
===
log.append(sys._getframe(0).f_lineno > 0)
===
log.append(inspect.currentframe().f_code.co_argcount)
===
assert $c, ("asserted", $i)
===
log.append([str(j)[:2] for j in (None, True, ..., NotImplemented)])
===
log.append(isinstance($i, int | str))
===
log.append(f"{$i=}" f"{'nested':>{$d + 7}}")
===
log.append(slice($i, None).indices(5))
===
log.append(list(range(9))[slice($d, -1, 2)])
===
log.append(bytearray([$d, 1]) + b"a")
===
log.append(memoryview(b"abc")[$d % 3])
===
log.append(array.array("i", [$d, 2]).tolist())
===
log.append(struct.pack("<i", $i))
===
log.append(re.sub("[0-9]+", lambda m: str(int(m[0]) + 1), "a%d" % $k))
===
log.append(datetime.timedelta(days=$d).total_seconds())
===
log.append(uuid.UUID(int=$d).hex[-2:])
===
log.append(string.Template("${a}").substitute(a=$i))
===
log.append(textwrap.shorten("words " * $d, 9))
===
log.append(hashlib.sha256(str($k).encode()).hexdigest()[:6])
""")

CONDITIONS = rows("""
len(EVENTS) > 3
within($d) > 2
any(within(j) > $d for j in range(3))
all(yielding_within($d))
REENTRANT.depth == 0
($1 := $i) > 1
"a" in locals()
""")
CONDITIONS = tuple(row for row in CONDITIONS if "$1" not in row)

NESTED = parts("""
with contextlib.ExitStack() as $1:
    [$1.enter_context(entered(j)) for j in range($k)]
    $block
===
with entered($i) as $n, entered(2):
    $block
    if $c:
        $raise
===
with REENTRANT as $n:
    $block
    if $c:
        raise KeyError("swallowed")
===
for $n in yielding_within($d):
    $block
    if $c:
        $leave
===
for $n in [within(j) for j in range($d)]:
    $block
===
@Scoped()
def $1(v, n=1):
    $body
$r = $1($t)
===
@repeat($d + 1)
def $1(v, n=1):
    $body
$r = $1($t)[-1]
===
async def $1(v, n=1):
    $body
$r = finished($1($t))
===
async def $1(v, n=1):
    async with entered_later(n):
        $body
$r = finished($1($t))
===
def $1(v, n=1):
    with entered(n):
        $body
$r = torch.stack([$1(u.expand(x.shape[0], 4)) for u in $v]).sum(0)
===
def $1(v, n):
    with entered(n):
        $yields
for $r in $1($t, $i):
    $block
===
def $1(v, n):
    with entered(n):
        $yields
$2 = list($1($t, $i))
log.append(len($2))
===
try:
    with transaction(TABLE):
        TABLE["k"] = $i
        $block
        if $c:
            raise ValueError
except ValueError:
    $block
===
for $n, $1 in zip(range(3), $v):
    if $1.sum() > 0:
        continue
    $block
else:
    $block
===
while True:
    $block
    if len(log) > $d or $c:
        break
    log.append($i)
===
with contextlib.suppress(Exception):
    $block
    $raise
""")

BETWEEN = parts("""
EVENTS.append("between")
===
REENTRANT.depth = 3
===
EVENTS.extend([1, 2, 3])
===
TABLE.clear()
TABLE["k"] = 3
===
TABLE["new"] = 1
===
log.extend([1] * 3)
===
box.n = $d
===
GROUPS[9].append(9)
===
HEAP.append(0)
===
RECENT.clear()
RECENT.append(4)
===
globals()["COUNT"] = True
===
box.last = torch.ones(1, 4)
===
squared.cache_clear()
""")

FLOW = Family(
    "flow",
    prelude="import array, datetime, hashlib, inspect, re, string, struct, textwrap, uuid\n" + PRELUDE,
    tensors=TENSORS,
    integers=INTEGERS,
    conditions=CONDITIONS,
    simple=SIMPLE,
    nested=NESTED,
    between=BETWEEN,
)

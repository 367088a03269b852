"""The base of every generated program: tensors, views, loops, branches, handlers, generators, containers, printing."""

from __future__ import annotations

from .family import Family, parts, rows
from .numbers import NUMBERS

TENSORS = rows("""
($t + $t)
($t - $t)
($t * $t)
($t + $i)
($t * $i)
($i - $t)
$t.sin()
$t.relu()
$t.tanh()
$t.abs()
$t.neg()
$t.clone()
$t.sigmoid()
torch.where($v > 0, $v, $t)
($t.t() * 0.5).t()
box.apply($t)
($v - $v.mean(dim=1, keepdim=True))
torch.stack([$t, $t]).sum(0)
$t.clamp(-2, 2)
torch.cat([$v[:1], $v[1:]])
($t @ torch.eye(4))
torch.nn.functional.layer_norm($t, (4,))
torch.softmax($t, -1)
box.net($t)
($t * box.w)
($t if $c else $v)
depth_first($d, $t)
doubled($t)
doubled($t, by=$i)
finished(later($t))
finished(both($t))
Pair($t)($v)
(Pair($t, 1) + Pair($v, $i)).a
Point($t).t
Point(t=$v, n=$i)[0]
functools.reduce(operator.add, [$t, $v, $v])
functools.reduce(lambda a, b: a * 0.5 + b, [$v, $v])
functools.partial(torch.add, $t, alpha=$i)($v)
max([$v, $v], key=lambda u: u.shape[0])
sorted([$v, $v], key=lambda u: float(u.sum()))[0]
sum($v for _ in range($d))+$v
torch.stack(list(chosen($v)))
torch.stack([u * 2 if u.sum() > 0 else u for u in $v])
torch.stack([*map(torch.neg, $v)])
torch.stack(list(itertools.chain($v[:1], $v[1:])))
torch.stack([u + j for j, u in enumerate($v)])
torch.stack([p + q for p, q in zip($v, $v)])
torch.stack(list(reversed($v.unbind(0))))
torch.stack(list(itertools.accumulate($v)))
torch.stack([p for p, _ in itertools.zip_longest($v, range(1), fillvalue=0)])
copy.deepcopy($v.detach())
torch.from_numpy($v.detach().numpy() * 2)
($v[$v > 0].sum() + $v)
($v.masked_fill($v > 1, 0.5))
{"a": $t, "b": $v}["b"]
(lambda u, w=$v: u + w)($t)
$v.view(x.shape[0], 2, 2).transpose(1, 2).reshape(x.size(0), 4)
($v[:, :3].sum(1, keepdim=True) + $t)
($v[:2, 1:].sum() + $t)
(torch.arange(x.size(0)).unsqueeze(1) * $t)
($t + torch.zeros($v.shape))
$v.contiguous()
$v.t().contiguous().t()
($v[: x.shape[0] // 2].sum(0) + $v)
$v.flatten().view(*y.shape)
torch.cat([$t, $v])[: len(x)]
$v.expand(2, *$v.shape).sum(0)
$v.repeat_interleave(2, dim=0)[::2]
$v[torch.randperm(len($v))]
torch.nn.functional.pad($v, (0, 1))[:, :4]
$v[[i for i in range(len(y))]]
$v.split(1)[0].expand(x.shape[0], 4)
$v.float().double().float()
""")

INTEGERS = rows("""
$d
-$d
$k
$k
($k % 3)
len(log)
box.n
box.twice
box.maybe
x.shape[0]
TABLE["k"]
TABLE.get("m", 1)
y.numel()
max(len(x), 3)
x.size(-1)
min($k, 5)
squared($k % 4)
len(RECENT)
RECENT[-1]
HEAP[0]
sum(TALLY.values())
len(GROUPS)
int($v.sum().item()) % 4
len($v.nonzero())
len(torch.unique($v > 0))
int($v.argmax())
int(($v > 0).sum())
($k if $c else $d)
operator.index($k)
(lambda j: j + $d)($k)
sum(numbers($d))
sum(itertools.islice(itertools.count($d), 2))
len(f"{$k:>3}")
bisect.bisect([0, 2, 4], $k)
len(json.dumps({"k": $k}))
round(float($v.mean()))
""")

CONDITIONS = rows("""
$i > $i
$i % 2 == 0
$v.sum() > $d
$v.sum() < -1
bool(($v > 1).any())
$v.max().item() > 0.5
$v.dim() == 2 and $i < 3
not ($i == 1)
x.shape[0] > 3
x.shape == y.shape
x.size(0) % 2 == 1
any(u.sum() > 0 for u in $v)
all(u > -1 for u in $v[0].tolist())
$k in (1, 2, 3)
$k in RECENT
"k" in TABLE and TABLE["k"] > 1
isinstance($k, int)
float($v.mean()) > 0
$v is $v
torch.is_grad_enabled()
hasattr(box, "last")
1 < $k < 4
torch.equal($v, $v)
""")

SIMPLE = parts("""
$r = $t
===
$r = $t
===
$w = $t
===
$w = $t
===
$n = $i + $d
===
$n = int($v.sum().item()) % 4
===
$n = max(map(lambda u: int(u * 2), $v[0].tolist())) % 5
===
log.append($i)
===
log.append($v)
===
log.append(($i, $v))
===
box.n = $i
===
box.twice = $i
===
COUNT += 1
===
TABLE["k"] = $i
===
TABLE.setdefault("m", $i)
===
TABLE.pop("m", None)
===
box.last = $v
===
log.reverse()
===
log and log.pop()
===
del log[2:]
===
log[:1] = [$i, $i]
===
log.insert(0, $i)
===
GROUPS[$i].append($i)
===
GROUPS[$i % 2].append($v)
===
$1 = collections.defaultdict(int)
for $2 in ($i, $i, 2):
    $1[$2 % 2] += 1
$n = $1[0]
log.append(dict($1))
===
$1 = collections.defaultdict(list)
for $2 in $v:
    $1[bool($2.sum() > 0)].append($2)
$n = len($1[True])
===
TALLY["a"] += $d
===
TALLY.update(["a", "b", $k])
===
$1 = collections.Counter([$i, $i, $k])
$n = $1.most_common(1)[0][1]
===
$1 = collections.Counter("abca") + collections.Counter(b=$d)
log.append(sorted($1.items()))
===
RECENT.append($i)
===
RECENT.appendleft($i)
RECENT.rotate(1)
===
$1 = collections.deque([$i, $i, 3], maxlen=3)
$1.append($i)
$n = $1.popleft()
log.append(list($1))
===
$1 = collections.deque(maxlen=2)
for $2 in $v:
    $1.append($2 + 1)
log.append($1[0])
===
$1 = collections.OrderedDict(a=$v, b=$t)
$1.move_to_end("a")
$r = $1.popitem()[1]
===
$1 = collections.ChainMap({"a": $i}, TABLE)
$n = $1["k"] + $1["a"]
===
heapq.heappush(HEAP, $i)
===
$n = heapq.heappushpop(HEAP, $i)
===
$1 = [$i, $i, 3, $k]
heapq.heapify($1)
$n = heapq.heappop($1)
log.append($1)
===
$1 = []
for $2, $3 in enumerate($v):
    heapq.heappush($1, (float($3.sum()), $2))
$n = heapq.heappop($1)[1]
===
log.append(heapq.nlargest(2, [$i, $i, $i]))
===
log.append(list(itertools.accumulate([$i, $i, $i])))
===
log.append([p * q for p, q in itertools.product((1, $i), (2, $k))])
===
log.append(list(itertools.takewhile(lambda j: j < $i, [0, 1, 2, 3])))
===
log.append({j: len(list(g)) for j, g in itertools.groupby([0, 0, $k, $k])})
===
log.append(list(itertools.starmap(pow, [(2, $d), ($k, 2)])))
===
$1, $2 = itertools.tee(numbers($d + 1))
next($1)
log.append((list($1), list($2)))
===
log.append([p for p, _ in zip(itertools.cycle("ab"), range($d + 1))])
===
log.append(list(map(tuple, itertools.combinations(range(3), 2))))
===
$n = sum(Countdown($d)) + sum(relay($d, log))
===
$1 = iter(relay(2, log))
$n = next($1) + next($1, 7)
$1.close()
===
$1 = echo($i)
next($1)
$n = $1.send($i) + $1.throw(ValueError("abc"))
===
$1 = averaging()
next($1)
for $2 in $v[0].tolist():
    $1.send(int($2))
try:
    $1.send(None)
except StopIteration as e:
    log.append(e.value)
===
$1, *$2 = $v
log.append(len($2))
===
$n, $1 = divmod($i, 3)
log.append($1)
===
($r, $n), $1 = ($t, $i), 3
===
$r, $n = Point($t, $i)
===
$r, _ = Pair($t)
===
$1 = $i
def $2(step):
    nonlocal $1
    $1 += step
    return $1
$2($i)
$n = $2(2)
===
$1 = [lambda v, j=j: v + j for j in range(2)]
$r = $1[1]($1[0]($t))
===
$1 = [lambda v: v * $k for _ in range(2)]
$r = $1[-1]($t)
===
$w.add_($i)
===
$v.mul_(0.5)
===
$v[$d] = $i
===
$v[:, $d].neg_()
===
$w += 1
===
$w *= $t
===
$v[$v > 1] = 0.25
===
$1 = $v[:, 1:3]
$1.add_($i)
===
$1 = $v.t()
$1[0] = 0.5
$r = $1.t()
===
$1 = $v.view(-1)
$1[::2].mul_(2)
===
$r = $v.view_as($v)
$r.neg_()
===
$1 = $v.unsqueeze(0)
$1 += $t
===
$v.copy_($t)
===
torch.add($v, $v, out=$v)
===
$v.index_add_(0, torch.tensor([0]), torch.ones(1, 4))
===
$v.masked_fill_($v < -1, -1.0)
===
$v.detach().zero_()
===
$v.data.mul_(2)
===
$1, $2 = $v.chunk(2, dim=1)
$1.copy_($2)
===
$r = $v[:]
$r[0, 0] = $i
===
$r = $v.clone().unsqueeze_(0).squeeze_(0)
===
$r = $v.detach()
===
print($i, 'text', sep='|')
===
print(f'{$v.sum():.3f}', end=';')
===
print($v[0])
===
print(box.n, COUNT)
===
print($v.shape, $v.dtype)
===
sys.stdout.write(str($i))
===
warnings.warn("number %d" % $i)
===
logger.warning("value %s", $i)
===
$r = torch.stack([row * $i for row in $v])
===
log.append([j for j in $v[0].tolist() if j > 0])
===
log.append({j % 2: j for j in ($i, $k, 3)})
===
log.append(sorted({$i, $k, 3}))
===
log.append(" ".join(str(j) for j in ($i, $k)))
===
log.append(type($k).__name__)
===
$r = torch.rand(x.shape)
===
$n = random.randint(0, $d)
===
$n = int(numpy.abs($v.detach().numpy()).sum()) % 3
===
assert $v.dim() == 2, "two dimensions"
===
$r = $t
del $r
$r = $v + 1
===
if ($1 := $i) > 2:
    log.append($1)
===
try:
    $v @ torch.ones(3, 3)
except RuntimeError as e:
    log.append(str(e)[:20])
===
try:
    $v.view(7, 3)
except RuntimeError as e:
    log.append(type(e).__name__)
    $n = $d
else:
    $n = 1
===
try:
    log.append($v[$i])
except IndexError as e:
    log.append(type(e).__name__)
===
try:
    torch.cat([$v, torch.ones(1)])
except (RuntimeError, ValueError) as e:
    log.append(len(e.args))
===
try:
    log.append(TABLE["none"])
except KeyError:
    COUNT += 1
===
try:
    log.append(1 // ($i % 2))
except ZeroDivisionError as e:
    log.append(str(e))
===
try:
    log.append(box.nothing)
except AttributeError:
    log.append("none")
""")

NESTED = parts("""
try:
    assert $c, f"{$k}"
    $block
except AssertionError as e:
    log.append(str(e))
===
if $c:
    $block
===
if $c:
    $block
else:
    $block
===
if $c:
    $block
elif $c:
    $block
else:
    $block
===
for $n in range($d):
    $block
===
for $n in range($k % 3):
    $block
    if $c:
        $leave
===
for $n in range(3):
    $block
    if $c:
        $leave
    $block
else:
    $block
===
$1 = 0
while $1 < 3 and ($c):
    $1 += 1
    $block
===
$1 = 0
while True:
    $1 += 1
    if $1 > $d or $c:
        break
    $block
===
try:
    $block
except $error as e:
    log.append(type(e).__name__)
    $block
===
try:
    $block
    if $c:
        $raise
except $error as e:
    log.append(repr(e))
    $block
finally:
    $block
===
try:
    if $c:
        $raise
    $block
except KeyError:
    $block
except (IndexError, TypeError) as e:
    log.append(type(e.__context__).__name__)
else:
    $block
finally:
    log.append("done")
===
try:
    try:
        $block
        if $c:
            $raise
    except $error as e:
        if $c:
            raise
        raise RuntimeError("second") from e
    finally:
        $block
except Exception as e:
    log.append((str(e), type(e.__cause__).__name__))
    if $c:
        $block
===
for $n in range(2):
    try:
        $block
        if $c:
            $leave
    finally:
        $block
===
for $n in numbers(3):
    with section(log, 'b'):
        if $c:
            $leave
        $block
===
try:
    torch.ones(2) + torch.ones(3)
except RuntimeError:
    $block
    if $c:
        $block
===
with torch.no_grad():
    $block
===
with section(log, 'a') as $n:
    $block
===
with contextlib.suppress(ValueError, IndexError):
    $block
    if $c:
        raise IndexError
    $block
===
with forgiving(log, $v) as $r:
    $block
    if $c:
        raise KeyError("k")
===
with Guarded(log, True):
    $block
    if $c:
        raise ValueError("guarded")
===
with section(log, 'a'), Guarded(log, False):
    $block
===
with contextlib.ExitStack() as $1:
    $1.enter_context(section(log, 's'))
    $1.callback(log.append, 'callback')
    $block
===
def $1(v, n=$i):
    $body
$r = $1($t)
===
def $1(v, n=$i):
    $body
$r = $1($t, $k)
$w = $1(v=$v)
===
def $1(v, n=$i):
    $body
$r = torch.stack([$1(u.expand(x.shape[0], 4)) for u in $v]).sum(0)
===
@logged
def $1(v, n=1):
    $body
$r = $1($t, n=$i)
===
def $1(v, n):
    $yields
for $r in $1($t, $i):
    $block
===
def $1(v, n):
    $yields
log.extend($1($t, $i))
===
def $1(v, n):
    $yields
$2 = $1($v, $i)
$r = next($2, $v)
$block
$2.close()
===
def $1(v, n):
    $yields
def $2(v, n):
    try:
        log.append((yield from $1(v, n)))
    finally:
        log.append("after")
for $r in $2($v, $i):
    if $c:
        break
    $block
===
@contextlib.contextmanager
def $1(v, n):
    try:
        if v.sum() > n:
            log.append("above")
        yield v + n
    except ValueError as e:
        log.append(str(e))
    finally:
        log.append("left")
with $1($t, $i) as $r:
    $block
    if $c:
        raise ValueError("inside")
===
for $n in $source:
    $block
===
for $r in chosen($v):
    $1 = $r.expand(x.shape[0], 4)
    log.append($1)
    if $c:
        $leave
===
for $n, $1 in enumerate($v[0].tolist()):
    if $1 > 0:
        continue
    $block
===
match $k:
    case 0 | 1:
        $block
    case 2 if $c:
        $block
    case _:
        $block
===
match {"a": $i, "b": ($k, 2)}:
    case {"a": 1}:
        $block
    case {"b": (1, $1)}:
        log.append($1)
        $block
""")

ERRORS = ("Exception", "Exception", "Exception", "(KeyError, ValueError)", "(LookupError, RuntimeError)")
RAISES = (
    "raise ValueError('v')",
    "raise KeyError('k')",
    "raise RuntimeError(str(k))",
    "raise IndexError",
    "[].pop()",
    "x @ torch.ones(3, 3)",
    "{}['missing']",
)
SOURCES = (
    "numbers(3)",
    "(v for v in (1, 2))",
    "map(abs, (-1, 2))",
    "relay(2, log)",
    "Countdown(2)",
    "filter(None, (0, 1, 2))",
    "itertools.chain((1,), numbers(2))",
    "itertools.islice(itertools.count(), 3)",
    "[1, 2][::-1]",
    "sorted({2, 1})",
    "list(RECENT)",
    "dict(a=1, b=2).values()",
)

BASE = Family(
    "base",
    tensors=TENSORS,
    integers=INTEGERS,
    scalars=NUMBERS.scalars,
    conditions=CONDITIONS,
    raises=RAISES,
    simple=SIMPLE,
    nested=NESTED,
)

"""Numbers of every kind, mixed: builtins that reduce them, operators, comparisons, `math`, torch.Size, dict keys."""

from __future__ import annotations

from .family import Family, parts, rows

SCALARS = rows("""
s
s
s
$k
$d
-$d
True
False
0.0
-0.0
0.5
-1.5
float("inf")
float("-inf")
float("nan")
10 ** 20
2 ** 63
x.shape[0]
x.size(0)
$v.numel()
$v.sum()
$v.max()
$v[0, 0]
$v[-1, $d]
$v.sum().item()
$v[0, 0].item()
$v[0].tolist()[$d]
$v.any()
$v.any().item()
($v > 0).sum()
($v > 0).sum().item()
float($v.sum())
bool($v.any())
torch.tensor($d)
torch.tensor(2.5)
torch.tensor(True)
torch.tensor(1.5, dtype=torch.float64)
numpy.float64(1.5)
numpy.float32(0.5)
numpy.int64($d)
numpy.bool_(True)
numpy.float64($v[0, 0].item())
box.n
len(log)
($s + $s)
($s - $s)
($s * $s)
($s / $s)
($s // 2)
($s % 3)
(-$s)
(+$s)
abs($s)
(not $s)
($s or $s)
($s and $s)
($s if $s else $s)
($s < $s)
($s == $s)
($s != $s)
($s >= $s)
max($s, $s)
min($s, $s)
max([$s, $s, $s])
min([$s, $s, $s])
max($s, $s, key=abs)
min([$s, $s], default=$d)
max([], default=$s)
sum([$s, $s])
sum([$s, $s, $s], $s)
sum((j for j in ($s, $s)), $s)
any([$s, $s])
all([$s, $s])
any(j > $d for j in ($s, $s))
all(j for j in ($s, $s))
round($s)
round($s, 1)
round($s, None)
round($s, -1)
pow($s, 2)
pow($d, $d, 5)
pow(2.0, $d)
pow($s, 0.5)
int($s)
float($s)
bool($s)
complex($s)
divmod($s, 2)[0]
divmod($s, $s)[1]
($i ** 2)
($i << $d)
($i >> 1)
($i & 3)
($i | $i)
($i ^ $i)
~$i
math.floor($s)
math.ceil($s)
math.trunc($s)
math.sqrt(abs($s))
math.prod([$s, $s])
math.fsum([$s, $s])
math.gcd($i, $i)
math.isqrt(abs($i))
math.hypot($s, $s)
math.copysign(1.0, $s)
math.fmod($s, 2)
math.isclose($s, $s)
math.isnan($s)
math.isfinite($s)
math.atan2($s, $s)
operator.add($s, $s)
operator.index($i)
operator.truth($s)
functools.reduce(operator.mul, [$s, $s, $s])
numpy.maximum($s, $s)
torch.maximum(torch.as_tensor($s), torch.as_tensor($s))
sum(x.shape)
max(x.shape)
math.prod(x.shape)
x.shape.numel()
x.shape[:1][0]
(x.shape + (2,))[-1]
int.from_bytes(bytes([$d, 1]), "big")
$i.bit_length()
float($i).is_integer()
statistics.mean([$i, $i, 2])
fractions.Fraction($i, 3)
hash($i)
len(str($s))
ord("a")
{1: $s}[True]
[$s, $s, $s][$d % 3]
sorted([$i, $i, $k])[1]
""")

SIMPLE = parts("""
$z = $s
===
$z = $s
===
$z = $s
log.append(type($z))
===
log.append($s)
===
log.append([$s, $s, $s])
===
log.append(type($s).__name__)
===
$z = max($s, $s)
log.append(($z, type($z)))
===
$z = sum([$s, $s, $v[0, 0].item()])
===
$z, $1 = divmod($s, $d)
log.append($1)
===
log.append(sorted([$s, $s, $s]))
===
log.append(sorted([$s, $s, $s], reverse=True))
===
log.append(sorted([$s, $s, $s], key=lambda j: -j))
===
log.append(sorted([$i, $i, True, 0.5]))
===
log.append(list(map(min, [$s, $s], [$s, $s])))
===
log.append(list(map(round, [$s, $s])))
===
log.append([j for j in [$s, $s, $s] if j])
===
log.append($s in [$s, $s])
===
log.append([$i, $i, 2].index(2))
===
log.append({$s: 1, $k: 2, 1.0: 3})
===
log.append(dict.fromkeys([$i, True, 0.0, $k]))
===
log.append(f"{$i:>4}|{$i!r:<3}|{$i:+d}")
===
log.append("%s %r %5.2f" % ($i, $i, 0.5))
===
log.append(f"{$s}")
===
log.append(str($s))
===
log.append(repr(bool($s)))
===
print($s)
===
log.append(bin($i) + hex($i) + oct($i))
===
log.append(x.shape + ($s,))
===
log.append(torch.Size([1, 2]) + (True,))
===
log.append(($s,) + tuple(x.shape))
===
log.append(torch.Size([$i, True]))
===
log.append((x.shape * 2, x.shape[1:], x.shape == (x.size(0), 4), x.shape.count(4)))
===
log.append(tuple(x.shape) == x.shape and x.shape in {x.shape: 1})
===
log.append(x.new_zeros(x.shape[:1] + (2,)).shape)
===
try:
    log.append(max($s, $s))
except Exception as e:
    log.append((type(e), e.args))
===
try:
    log.append(sum([$s, $s, $s], start=$s))
except Exception as e:
    log.append((type(e), e.args))
===
try:
    log.append(sorted([$s, $s, $s, $s]))
except Exception as e:
    log.append((type(e), e.args))
===
try:
    log.append(round($s, $d))
except Exception as e:
    log.append((type(e), e.args))
===
try:
    $z = int($s) + pow($s, 2)
except (ValueError, OverflowError, TypeError, RuntimeError) as e:
    log.append(repr(e))
    $z = $d
===
try:
    log.append([$s / $s, $s % $s, $s // $s])
except ArithmeticError as e:
    log.append(repr(e))
===
$r = $t * $s
===
$r = $t + $s
===
$r = torch.full((x.size(0), 4), 1.0) * $s
===
$r = $v.clamp(min=$i)
===
$r = torch.where($v > $s, $v, 0.0)
===
$w = $w + ($s if isinstance($s, (int, float)) else 1)
===
$v.mul_(bool($s))
===
$v.add_(1, alpha=$i)
===
$1 = [$s, $s]
$1.sort()
$z = $1[0]
===
$1 = [$s, $s, $s]
$1.append(min($1))
$1.remove($1[0])
log.append($1)
===
$z = $s
$z += $s
log.append($z)
===
$z = $s
$z *= 2
$z -= $s
===
$1 = numpy.array([$i, 2, 3])
$z = $1.sum()
log.append(($1.dtype, $1 * 2))
===
$1 = $v.detach().numpy()
$z = $1[0, 0]
log.append($1.max())
===
$1 = $v[0].tolist()
log.append((min($1), max($1), sum($1), sorted($1)))
===
$1 = $v[0].tolist()
$z = max(zip($1, range(4)))[1]
===
$1 = [float(u.sum()) for u in $v]
log.append($1.index(max($1)))
===
$1 = statistics.median([$i, $i, 3])
$z = $1
===
log.append(decimal.Decimal($i) / 4)
""")

CONDITIONS = rows("""
$s
$s > $s
$s < $s < $s
$s == $s
$s != $s
$s is True
not $s
isinstance($s, bool)
isinstance($s, (int, float))
max($s, $s) > $d
all([$s, $s])
any([$s, 0])
$s in ($s, $d)
type($s) is type($s)
math.isfinite($s)
""")

NESTED = parts("""
if $s:
    $block
else:
    $block
===
for $z in [$s, $s, $s]:
    $block
===
for $z in ($s, True, $d):
    log.append(max($z, $s))
    $block
===
$z = $s
while $z < 3 and len(log) < 40:
    $z = $z + 1
    log.append($z)
    $block
===
match $s:
    case True:
        $block
    case 1 | 2.0:
        $block
    case float():
        $block
    case int():
        $block
    case _:
        $block
===
try:
    $z = $s // $s
    $block
except (ArithmeticError, ValueError, TypeError, RuntimeError) as e:
    log.append(repr(e))
    $block
""")

NUMBERS = Family(
    "numbers",
    scalars=SCALARS,
    conditions=CONDITIONS,
    simple=SIMPLE,
    nested=NESTED,
)

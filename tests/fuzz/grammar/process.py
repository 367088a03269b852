"""State of the process: torch's flags, default dtype and print options; warnings, the environment, contextvars, random
generators, numpy's error state, the collector; files that are read and written."""

from __future__ import annotations

from .family import Family, parts, rows

FLAGS_PRELUDE = """
import contextvars, gc, os

SETTING = contextvars.ContextVar("setting", default=1)
FLAG_READERS = (
    torch.get_default_dtype, torch.are_deterministic_algorithms_enabled, torch.get_float32_matmul_precision,
    torch.is_deterministic_algorithms_warn_only_enabled, torch.is_warn_always_enabled,
)

def restore_flags():
    os.environ.pop("FUZZ_SETTING", None)
    SETTING.set(1)
    logger.setLevel(logging.NOTSET)
    gc.enable()
"""

FLAG_INTEGERS = rows("""
int(torch.backends.mkldnn.enabled)
int(torch.backends.cudnn.benchmark)
int(torch.backends.cudnn.deterministic)
int(torch.backends.cuda.matmul.allow_tf32)
int(torch.are_deterministic_algorithms_enabled())
len(torch.get_float32_matmul_precision())
torch.get_default_dtype().itemsize
torch.get_num_threads()
torch.ones(1).element_size()
torch.tensor(0.5).element_size()
int(os.environ.get("FUZZ_SETTING", "1"))
SETTING.get()
int(gc.isenabled())
int(logger.isEnabledFor(logging.DEBUG))
len(warnings.filters) and 1
sys.getrecursionlimit() % 7
int(torch.is_warn_always_enabled())
len(numpy.geterr()["divide"])
random.getrandbits(3)
int(torch.initial_seed() > 5)
torch.get_rng_state().numel() % 7
""")

FLAG_TENSORS = rows("""
torch.ones(x.size(0), 4)
torch.zeros(x.shape).to(torch.get_default_dtype())
torch.full((x.size(0), 4), 0.5)
torch.arange(4.0).expand(x.size(0), 4)
torch.randn(x.size(0), 4)
torch.rand_like($v)
torch.empty(x.size(0), 4).fill_($d)
torch.as_tensor([[0.5] * 4] * x.size(0))
torch.linspace(0, 1, 4).expand_as(x)
""")

FLAG_CONDITIONS = rows("""
torch.backends.mkldnn.enabled
torch.backends.mkldnn.is_available()
torch.are_deterministic_algorithms_enabled()
torch.get_default_dtype() == torch.float64
torch.get_default_dtype() is torch.float32
torch.get_float32_matmul_precision() == "high"
torch.backends.cudnn.allow_tf32
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
torch.backends.opt_einsum.enabled
torch.backends.cuda.flash_sdp_enabled()
os.environ.get("FUZZ_SETTING") == "2"
"FUZZ_SETTING" in os.environ
os.getenv("FUZZ_SETTING")
SETTING.get() > 1
gc.isenabled()
random.random() > 0.5
torch.rand(()) > 0.5
numpy.random.rand() > 0.5
""")

FLAG_SIMPLE = parts("""
torch.set_default_dtype(torch.float64)
===
torch.set_default_dtype(torch.float32)
===
$1 = torch.get_default_dtype()
torch.set_default_dtype(torch.float64)
$r = torch.ones(x.size(0), 4) * 0.5
torch.set_default_dtype($1)
===
torch.use_deterministic_algorithms($c)
===
torch.use_deterministic_algorithms(True, warn_only=True)
===
torch.set_float32_matmul_precision("high" if $c else "highest")
===
torch.backends.mkldnn.enabled
log.append(torch._C._get_mkldnn_enabled())
===
torch._C._set_mkldnn_enabled($c)
===
torch.backends.cudnn.benchmark = $c
===
torch.backends.cudnn.allow_tf32 = $c
===
torch.backends.cuda.matmul.allow_tf32 = $c
===
with torch.backends.mkldnn.flags(enabled=False):
    $n = int(torch.backends.mkldnn.enabled)
    $r = $t
===
with torch.backends.cudnn.flags(enabled=False, deterministic=True):
    log.append(torch.backends.cudnn.deterministic)
===
torch.set_printoptions(precision=2)
===
torch.set_printoptions(profile="default")
===
print($v[0])
===
torch.set_warn_always($c)
===
os.environ["FUZZ_SETTING"] = str($i)
===
os.environ.pop("FUZZ_SETTING", None)
===
$1 = SETTING.set($i)
log.append(SETTING.get())
===
$1 = SETTING.set($i)
SETTING.reset($1)
===
log.append(contextvars.copy_context().run(lambda: SETTING.set($i) and SETTING.get()))
===
random.seed($i)
===
torch.manual_seed($d)
===
numpy.random.seed($d)
log.append(numpy.random.rand())
===
log.append(random.choice([$i, $i, 3]))
===
$1 = [1, 2, 3, $i]
random.shuffle($1)
log.append($1)
===
log.append(random.sample(range(9), 2))
===
$1 = random.getstate()
$n = random.randint(0, 9)
random.setstate($1)
===
$1 = torch.get_rng_state()
$r = torch.rand(x.size(0), 4)
torch.set_rng_state($1)
===
$1 = torch.Generator().manual_seed($d)
$r = torch.rand(x.size(0), 4, generator=$1)
===
with numpy.errstate(divide="ignore", invalid="ignore"):
    log.append(numpy.float64($i) / 0)
===
with warnings.catch_warnings():
    warnings.simplefilter("error")
    try:
        warnings.warn("raised %d" % $i)
    except UserWarning as e:
        log.append(e.args)
===
with warnings.catch_warnings(record=True) as $1:
    warnings.simplefilter("always")
    warnings.warn("recorded %d" % $i)
log.append([str(j.message) for j in $1])
===
warnings.warn("deprecated", DeprecationWarning, stacklevel=$d + 1)
===
logger.setLevel(logging.ERROR if $c else logging.DEBUG)
===
logger.debug("seen %s", $i)
===
gc.disable()
===
gc.enable()
===
with contextlib.redirect_stdout(io.StringIO()) as $1:
    print($i, $v[0, 0].item() > 0)
log.append($1.getvalue())
===
print($i, file=sys.stderr)
===
sys.stderr.write("e%d" % $i)
===
log.append([read() for read in FLAG_READERS])
===
log.append([f() for f in (torch.get_default_dtype, torch.is_grad_enabled)])
===
with torch.random.fork_rng():
    torch.manual_seed($d)
    $r = torch.rand(x.size(0), 4)
===
log.append(torch.tensor([0.5, $i]).dtype)
===
log.append((torch.ones(2) * 0.1).sum().dtype)
===
log.append(torch.get_default_device())
""")

FLAG_NESTED = parts("""
torch.set_default_dtype(torch.float64)
try:
    $block
finally:
    torch.set_default_dtype(torch.float32)
===
torch.use_deterministic_algorithms(True)
try:
    $block
finally:
    torch.use_deterministic_algorithms(False)
===
with torch.backends.mkldnn.flags(enabled=False):
    $block
===
with numpy.errstate(all="raise"):
    $block
===
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    $block
===
with contextlib.redirect_stdout(io.StringIO()) as $1:
    $block
log.append($1.getvalue())
===
if torch.get_default_dtype() == torch.float32:
    $block
else:
    $block
===
if torch.backends.mkldnn.enabled:
    $block
else:
    $block
""")

FLAG_BETWEEN = parts("""
torch.set_default_dtype(torch.float64)
===
torch.use_deterministic_algorithms(True, warn_only=True)
===
torch.set_float32_matmul_precision("high")
===
torch._C._set_mkldnn_enabled(False)
===
torch.backends.cudnn.benchmark = True
===
torch.backends.cudnn.allow_tf32 = False
===
torch.backends.cudnn.deterministic = True
===
torch.backends.cuda.matmul.allow_tf32 = True
===
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
===
torch.backends.opt_einsum.enabled = False
===
torch.backends.cuda.enable_flash_sdp(False)
===
torch.set_printoptions(precision=2)
===
os.environ["FUZZ_SETTING"] = "2"
===
SETTING.set(2)
===
gc.disable()
===
logger.setLevel(logging.ERROR)
===
torch.set_warn_always(True)
===
torch.manual_seed($d)
===
torch.set_num_threads(2)
===
numpy.seterr(divide="ignore")
""")

FLAGS = Family(
    "flags",
    prelude=FLAGS_PRELUDE,
    tensors=FLAG_TENSORS,
    integers=FLAG_INTEGERS,
    conditions=FLAG_CONDITIONS,
    simple=FLAG_SIMPLE,
    nested=FLAG_NESTED,
    between=FLAG_BETWEEN,
)

FILES_PRELUDE = """
import csv, os, pathlib, pickle, tempfile

FOLDER = os.environ.get("GENERATED_FOLDER", tempfile.gettempdir())
PATH = os.path.join(FOLDER, "lines.txt")
WRITTEN = os.path.join(FOLDER, "written.txt")

def restore_files():
    pathlib.Path(PATH).write_text("1,22,333\\n4,5\\n\\n678\\n")
    pathlib.Path(WRITTEN).write_text("")
"""

FILE_INTEGERS = rows("""
sum(len(line) for line in open(PATH))
len(open(PATH).readlines())
len(pathlib.Path(PATH).read_text())
os.path.getsize(WRITTEN)
os.stat(WRITTEN).st_size
int(os.path.exists(WRITTEN))
len(open(WRITTEN).read())
len(next(open(PATH)))
len(list(csv.reader(open(PATH))))
sum(1 for _ in io.StringIO("a\\nb\\nc"))
len(os.listdir(FOLDER))
""")

FILE_SIMPLE = parts("""
for $1 in open(PATH):
    log.append([len(q) for q in $1.strip().split(",")])
===
with open(PATH) as $1:
    for $2 in $1:
        log.append($2)
===
with open(PATH) as $1:
    log.append(next($1))
    log.append($1.readline())
    log.append($1.read())
===
with open(PATH) as $1:
    log.append([*map(str.strip, $1)])
===
with open(PATH) as $1:
    log.append($1.readline())
    log.append($1.tell())
    $1.seek(0)
    $n = len($1.read($d))
===
with open(PATH, "rb") as $1:
    log.append(sum($1.read()))
===
with open(PATH) as $1:
    log.append(dict(enumerate($1)))
===
with open(PATH) as $1, open(WRITTEN, "w") as $2:
    for $3 in $1:
        $2.write($3.upper() + str($i))
===
with open(WRITTEN, "a") as $1:
    print($i, file=$1)
===
with open(WRITTEN, "a") as $1:
    $1.writelines(str(j) for j in ($i, $k))
    log.append($1.tell())
===
log.append(open(WRITTEN).read())
===
pathlib.Path(WRITTEN).write_text(str($i))
===
$1 = open(WRITTEN, "w")
$1.write("kept")
del $1
log.append(os.path.getsize(WRITTEN))
===
with open(WRITTEN, "w") as $1:
    $1.write("a" * $d)
    log.append(os.path.getsize(WRITTEN))
    $1.flush()
    log.append(os.path.getsize(WRITTEN))
===
$1 = io.StringIO()
$1.write("%d;" % $i)
print($k, file=$1)
log.append($1.getvalue())
===
$1 = io.StringIO("a,b\\n1,2\\n")
log.append(list(csv.DictReader($1)))
===
$1 = io.BytesIO()
torch.save($v.detach(), $1)
$1.seek(0)
$r = torch.load($1)
===
$r = pickle.loads(pickle.dumps($v.detach()))
===
log.append(json.loads(json.dumps({"a": [$i, 0.5], "b": None})))
===
try:
    open(PATH + ".missing")
except FileNotFoundError as e:
    log.append(e.errno)
===
try:
    with open(PATH) as $1:
        next($1)
        $1.tell()
except OSError as e:
    log.append(e.args)
===
$1 = open(PATH)
$1.close()
try:
    next($1)
except ValueError as e:
    log.append(e.args)
===
$1 = iter(open(PATH))
$2 = next($1)
log.append(list($1))
===
os.remove(WRITTEN) if os.path.exists(WRITTEN) else None
""")

FILE_NESTED = parts("""
for $1 in open(PATH):
    log.append($1)
    $block
===
with open(PATH) as $1:
    for $2 in $1:
        if $c:
            break
        $block
    log.append($1.read())
===
with open(WRITTEN, "a") as $1:
    $1.write("x")
    $block
    $1.write("y")
===
for $n, $1 in enumerate(open(PATH)):
    if not $1.strip():
        continue
    $block
===
def $1(path):
    with open(path) as file:
        for line in file:
            yield len(line)
for $n in $1(PATH):
    $block
""")

FILE_BETWEEN = parts("""
pathlib.Path(PATH).write_text("7\\n88\\n")
===
pathlib.Path(WRITTEN).write_text("0123456789")
===
pathlib.Path(PATH).write_text("")
===
os.path.exists(WRITTEN) and os.remove(WRITTEN)
""")

FILES = Family(
    "files",
    prelude=FILES_PRELUDE,
    integers=FILE_INTEGERS,
    simple=FILE_SIMPLE,
    nested=FILE_NESTED,
    between=FILE_BETWEEN,
)

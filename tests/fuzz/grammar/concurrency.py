"""Threads that change what a program reads while it waits: locks, conditions, events, queues, semaphores, pools.

Who may run when is settled by what they wait for, so that every run gives the same.
"""

from __future__ import annotations

from .family import Family, parts, rows

PRELUDE = '''
import concurrent.futures, queue, threading

LOCK = threading.Lock()
RLOCK = threading.RLock()
LOCAL = threading.local()
SHARED = {"n": 0, "t": torch.zeros(4), "items": []}
WAIT = 20

def restore_concurrency():
    SHARED.clear()
    SHARED.update(n=0, t=torch.zeros(4), items=[])
    vars(LOCAL).clear()
    if LOCK.locked():
        LOCK.release()

class Other:
    """A thread that does what it is told, while the one that told it waits."""
    def __init__(self):
        self.todo, self.done = queue.Queue(), queue.SimpleQueue()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()
    def work(self):
        while (job := self.todo.get()) is not None:
            job()
            self.done.put("done")
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.todo.put(None)
        self.thread.join(WAIT)

def change(n):
    SHARED["n"] = n
    SHARED["t"] = torch.full((4,), float(n))
    SHARED["items"].append(n)
    TABLE["k"] = n

def holding(lock, n):
    """A thread that holds the lock, and lets go of it after a change once it is told to."""
    held, go = threading.Event(), threading.Event()
    def work():
        with lock:
            held.set()
            go.wait(WAIT)
            change(n)
    thread = threading.Thread(target=work)
    thread.start()
    held.wait(WAIT)
    return thread, go

def done(future):
    """The result, asked for when it is there: by then the line that gives it is always the same one."""
    concurrent.futures.wait([future])
    return future.result()

def started(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    return thread
'''

INTEGERS = rows("""
SHARED["n"]
len(SHARED["items"])
sum(SHARED["items"])
getattr(LOCAL, "n", 2)
int(LOCK.locked())
""")

TENSORS = rows("""
($v + SHARED["t"])
($v * SHARED["n"])
""")

CONDITIONS = rows("""
LOCK.locked()
LOCK.acquire(False) and (LOCK.release() or True)
SHARED["n"] > 1
hasattr(LOCAL, "n")
threading.current_thread() is threading.main_thread()
""")

SIMPLE = parts("""
with LOCK:
    SHARED["n"] += $d
===
with RLOCK, RLOCK:
    $n = SHARED["n"]
    SHARED["n"] = $n + 1
===
LOCK.acquire()
SHARED["n"] = $i
LOCK.release()
===
log.append((LOCK.acquire(timeout=1), LOCK.acquire(False), LOCK.locked(), LOCK.release()))
===
log.append((SHARED["n"], TABLE["k"]))
$1, $2 = holding(LOCK, $i)
log.append(SHARED["n"])
$2.set()
with LOCK:
    $n = SHARED["n"]
    log.append((SHARED["n"], TABLE["k"], len(SHARED["items"])))
$1.join()
===
log.append(SHARED["n"])
$1, $2 = holding(RLOCK, $i)
$2.set()
RLOCK.acquire()
log.append((SHARED["n"], SHARED["t"]))
RLOCK.release()
$1.join()
===
log.append(SHARED["n"])
$1, $2 = holding(LOCK, $i)
log.append(LOCK.acquire(timeout=0.001))
$2.set()
$1.join()
$n = SHARED["n"]
===
log.append(SHARED["n"])
$1 = started(change, $i)
$1.join()
$n = SHARED["n"]
===
log.append(TABLE["k"])
$1 = threading.Thread(target=lambda: TABLE.update(k=$i))
$1.start()
$1.join()
log.append((TABLE["k"], $1.is_alive()))
===
with Other() as $1:
    log.append(SHARED["n"])
    $1.todo.put(lambda: change($i))
    log.append($1.done.get())
    $n = SHARED["n"]
    $r = $v + SHARED["t"]
===
with Other() as $1:
    log.append(len(SHARED["items"]))
    $1.todo.put(functools.partial(SHARED["items"].append, $i))
    $1.done.get(timeout=WAIT)
    log.append(list(SHARED["items"]))
===
with Other() as $1:
    $2 = $v.sum()
    $1.todo.put(lambda u=$v: u.detach().add_(1))
    $1.done.get()
    log.append(($2, $v.sum()))
===
with Other() as $1:
    log.append(box.n)
    $1.todo.put(lambda: setattr(box, "n", $i))
    $1.done.get()
    log.append(box.n)
===
$1 = queue.Queue()
started($1.put, $i).join()
$n = $1.get() + $1.qsize()
===
$1 = queue.Queue(maxsize=1)
$1.put($i)
log.append(($1.full(), $1.get_nowait(), $1.empty()))
===
$1 = queue.PriorityQueue()
$1.put($i)
$1.put($k)
$n = $1.get()
===
$1 = queue.LifoQueue()
[$1.put(j) for j in range(3)]
$n = $1.get()
===
try:
    queue.Queue().get_nowait()
except queue.Empty as e:
    log.append(e.args)
===
$1 = queue.SimpleQueue()
$1.put($v)
$r = $1.get()
===
$1 = threading.Event()
$2 = started(lambda: (change($i), $1.set()))
$1.wait(WAIT)
log.append((SHARED["n"], $1.is_set()))
$2.join()
===
$1 = threading.Condition()
log.append(SHARED["n"])
def $2():
    with $1:
        change($i + 1)
        $1.notify_all()
with $1:
    $3 = started($2)
    $1.wait(WAIT)
    $n = SHARED["n"]
$3.join()
===
$1 = threading.Condition(LOCK)
def $2():
    with $1:
        SHARED["items"].append($i)
        $1.notify()
with $1:
    $3 = started($2)
    log.append($1.wait_for(lambda: len(SHARED["items"]) > 0, WAIT))
    $n = len(SHARED["items"])
$3.join()
===
$1 = threading.Semaphore(0)
log.append(SHARED["n"])
$2 = started(lambda: (change($i), $1.release()))
$1.acquire()
log.append(SHARED["n"])
$2.join()
===
$1 = threading.BoundedSemaphore(1)
with $1:
    log.append($1.acquire(blocking=False))
try:
    $1.release()
except ValueError as e:
    log.append(e.args)
===
$1 = threading.Barrier(2)
$2 = started(lambda: (change($i), $1.wait(WAIT)))
$1.wait(WAIT)
$n = SHARED["n"]
$2.join()
===
with concurrent.futures.ThreadPoolExecutor(1) as $1:
    log.append(SHARED["n"])
    done($1.submit(change, $i))
    $n = SHARED["n"]
===
with concurrent.futures.ThreadPoolExecutor(1) as $1:
    log.append(list($1.map(lambda j: j * 2, [$i, $i])))
===
with concurrent.futures.ThreadPoolExecutor(1) as $1:
    $r = done($1.submit(torch.add, $v, $v))
===
with concurrent.futures.ThreadPoolExecutor(1) as $1:
    $2 = $1.submit(lambda: 1 // 0)
    try:
        done($2)
    except ZeroDivisionError as e:
        log.append((e.args, $2.done()))
===
LOCAL.n = $i
===
log.append(getattr(LOCAL, "n", None))
started(lambda: setattr(LOCAL, "n", 9)).join()
log.append(getattr(LOCAL, "n", None))
===
$1 = []
$2 = started(lambda: $1.append(torch.is_grad_enabled()))
$2.join()
log.append($1)
===
try:
    LOCK.release()
except RuntimeError as e:
    log.append(e.args)
===
time.sleep(0)
log.append(SHARED["n"])
""")

NESTED = parts("""
with LOCK:
    $block
===
with RLOCK:
    $block
    with RLOCK:
        $block
===
LOCK.acquire()
try:
    $block
    if $c:
        $raise
finally:
    LOCK.release()
===
with Other() as $1:
    $1.todo.put(lambda: change($d))
    $1.done.get()
    $block
===
log.append(SHARED["n"])
$1, $2 = holding(LOCK, $i)
$2.set()
with LOCK:
    if SHARED["n"] > 1:
        $block
    else:
        $block
$1.join()
===
def $1(v, n=1):
    $body
with concurrent.futures.ThreadPoolExecutor(1) as $2:
    $r = done($2.submit($1, $v))
===
$1 = queue.Queue()
$2 = started(lambda: [$1.put(j) for j in (1, 2, None)])
for $n in iter($1.get, None):
    $block
$2.join()
""")

BETWEEN = parts("""
change($d)
===
started(change, $d).join()
===
SHARED["items"] = [1, 2]
===
LOCAL.n = 3
""")

CONCURRENCY = Family(
    "concurrency",
    prelude=PRELUDE,
    tensors=TENSORS,
    integers=INTEGERS,
    conditions=CONDITIONS,
    simple=SIMPLE,
    nested=NESTED,
    between=BETWEEN,
    alone=(r"\bLOCK\b(?!\.locked)", r"\bRLOCK\b"),
)

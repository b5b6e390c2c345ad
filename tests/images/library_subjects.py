"""What the trials do with each library: take it up, use it, and expect the same answer ever after."""

# ruff: noqa: E501 - the forms are data, and read best on one line

from __future__ import annotations

from dataclasses import dataclass

MARK = {"python": ("x = {}", "x"), "sbcl": ("(defparameter cl-user::*x* {})", "cl-user::*x*")}
KILL = {
    "python": "import os; os.kill(os.getpid(), 9)",
    "sbcl": "(sb-posix:kill (sb-posix:getpid) 9)",
}


@dataclass(frozen=True)
class Subject:
    """One row: a library in one condition. `use` is an expression that gives the same value each time."""

    name: str
    begin: str
    use: str
    remark: str = ""
    package: str = ""
    language: str = "python"
    system: str = ""


def _python(
    name: str, begin: str, use: str = "go()", *, package: str | None = None, remark: str = ""
) -> Subject:
    return Subject(name, begin, use, remark, name.partition(",")[0] if package is None else package)


SUBJECTS = (
    _python("numpy", """
import numpy
a = numpy.arange(250000.0).reshape(500, 500) / 250000
def go(): return round(float((a @ a).sum() + numpy.linalg.svd(a[:99, :99])[1][0]), 3)"""),
    _python("scipy", """
import numpy, scipy.linalg, scipy.optimize
a = numpy.random.default_rng(1).random((300, 300))
def go(): return round(float(abs(scipy.linalg.lu(a)[2]).sum() + scipy.optimize.minimize(lambda v: ((v - 1) ** 2).sum(), numpy.zeros(3)).fun), 3)"""),
    _python("matplotlib", """
import matplotlib; matplotlib.use('Agg')
import matplotlib.pyplot as plt, io
def go():
    figure, axes = plt.subplots()
    axes.plot(range(99)); target = io.BytesIO(); figure.savefig(target); plt.close(figure)
    return len(target.getvalue()) > 5000"""),
    _python("pandas", """
import io, pandas
text = 'a,b\\n' + '\\n'.join(f'{i % 7},x{i}' for i in range(20000))
def go(): return int(pandas.read_csv(io.StringIO(text)).query('b.str.contains("9")').groupby('a').b.count().sum())"""),
    _python("pyarrow", """
import io, pyarrow, pyarrow.compute, pyarrow.csv, pyarrow.parquet
def go():
    target = io.BytesIO(); pyarrow.parquet.write_table(pyarrow.table({'a': list(range(50000))}), target); target.seek(0)
    rows = pyarrow.csv.read_csv(io.BytesIO(b'x,y\\n' + b'1,2\\n' * 400000))
    return pyarrow.compute.sum(pyarrow.parquet.read_table(target)['a']).as_py() + len(rows)"""),
    _python("scikit-learn", """
import numpy
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
data = numpy.random.default_rng(1).random((3000, 8))
def go():
    line = LogisticRegression().fit(data, data[:, 0] > .5).score(data, data[:, 0] > .5)
    return round(float(KMeans(4, n_init=1, random_state=1).fit(data).inertia_ + line), 2)"""),
    _python("scikit-learn, threads of joblib", """
import numpy
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
data = numpy.random.default_rng(1).random((500, 8))
def go():
    steps = HistGradientBoostingRegressor(max_iter=5).fit(data, data[:, 0]).score(data, data[:, 0])
    return round(RandomForestClassifier(20, n_jobs=2, random_state=1).fit(data, data[:, 0] > .5).score(data, data[:, 0] > .5) + steps, 2)""",
        remark="joblib makes a semaphore of the system for its pool, which a preview may not"),
    _python("numexpr", """
import numpy, numexpr
numexpr.set_num_threads(4)
a = numpy.arange(2000000.0)
def go(): return float(numexpr.evaluate('sum(a * 2 + 1)'))"""),
    _python("opencv-python-headless", """
import numpy, cv2
cv2.setNumThreads(4)
picture = numpy.arange(12000000, dtype='uint32').astype('uint8').reshape(2000, 2000, 3)
def go(): return int(cv2.GaussianBlur(picture, (9, 9), 0).sum()) + int(cv2.resize(picture, (900, 900)).sum())"""),
    _python("polars", """
import polars
frame = polars.DataFrame({'a': [i % 7 for i in range(20000)], 'b': range(20000)})
def go(): return int(frame.lazy().group_by('a').agg(polars.col('b').sum()).collect()['b'].sum())""",
        remark="threads from the import on, until the image is reset or goes back to before it"),
    _python("duckdb, connected", """
import duckdb
base = duckdb.connect()
def go(): return int(base.execute('select sum(i % 7) from range(300000) t(i)').fetchone()[0])"""),
    _python("duckdb, closed after use", """
import duckdb
def go():
    with duckdb.connect() as base: return int(base.execute('select sum(i % 7) from range(300000) t(i)').fetchone()[0])"""),
    _python("requests", """
import requests, subprocess, sys, time
server = subprocess.Popen([sys.executable, '-m', 'http.server', '8317', '--bind', '127.0.0.1'], stdout=-3, stderr=-3)
session = requests.Session()
def go(): return session.get('http://127.0.0.1:8317/').status_code
for _ in range(200):
    try: go(); break
    except requests.ConnectionError: time.sleep(0.05)""",
        remark="open connections are shared with the copy; the server here is another process, which is not taken back"),
    _python("pydantic", """
import pydantic
class Plant(pydantic.BaseModel):
    name: str
    height: float
def go(): return Plant.model_validate_json('{"name": "rose", "height": "1.5"}').height"""),
    _python("tqdm", """
import io, tqdm
def go(): return sum(tqdm.tqdm(range(99), file=io.StringIO()))""",
        remark="its monitor is a thread that waits: a copy is made beside it, and the monitor runs in the copy again"),
    _python("Django", """
import django
from django.conf import settings
settings.configure(DATABASES={'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'site.sqlite3'}}, INSTALLED_APPS=['django.contrib.contenttypes'])
django.setup()
from django.core.management import call_command
call_command('migrate', verbosity=0)
from django.contrib.contenttypes.models import ContentType
def go(): return ContentType.objects.get_for_model(ContentType).model""",
        remark="its database of SQLite goes back with the state; runserver and its reloader are threads, which hold states back"),
    _python("sqlite3, in memory", """
import sqlite3
base = sqlite3.connect(':memory:')
base.executescript('create table plant (name); insert into plant values (1), (2)')
def go(): return base.execute('select count(*) from plant').fetchone()[0]""", package=""),
    _python("sqlite3, in a file", """
import sqlite3
base = sqlite3.connect('plants.db')
base.executescript('drop table if exists plant; create table plant (name); insert into plant values (1), (2)')
def go(): return base.execute('select count(*) from plant').fetchone()[0]""", package="",
        remark="what was written to the file goes back with the state; a transaction that was open when the state was kept holds no lock in the copy, so commit first; "
        "a preview reads a file that is open for writing, and cannot write it"),
    _python("asyncio", """
import asyncio
async def one(): await asyncio.sleep(0.001); return 5
async def go(): return sum(await asyncio.gather(one(), one()))""", "await go()", package=""),
    _python("asyncio.to_thread", """
import asyncio
async def go(): return await asyncio.to_thread(pow, 2, 5)""", "await go()", package=""),
    _python("ThreadPoolExecutor, idle", """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
def go(): return sum(pool.map(abs, (-1, -2)))""", package=""),
    _python("logging, QueueListener", """
import io, logging, logging.handlers, queue
source, sink = queue.Queue(), io.StringIO()
listener = logging.handlers.QueueListener(source, logging.StreamHandler(sink))
listener.start()
def go():
    source.put(logging.makeLogRecord({'msg': 'hello'})); source.join()
    return sink.getvalue().splitlines()[-1]""", package=""),
    _python("ThreadPoolExecutor, shut down", """
from concurrent.futures import ThreadPoolExecutor
def go():
    with ThreadPoolExecutor(2) as pool: return sum(pool.map(abs, (-1, -2)))""", package=""),
    _python("multiprocessing, Process", """
import multiprocessing
def serve(end):
    while True: end.send(end.recv() ** 2)
near, far = multiprocessing.get_context('fork').Pipe()
child = multiprocessing.get_context('fork').Process(target=serve, args=(far,), daemon=True)
child.start()
def go():
    near.send(3)
    return near.recv() if near.poll(5) else 'no answer'""", package="",
        remark="children are not copied: a state that is taken up again talks to the same child through the same pipe, and cannot join it"),
    _python("multiprocessing, Pool", """
import multiprocessing
pool = multiprocessing.get_context('fork').Pool(2)
def go(): return sum(pool.map(abs, [-1, -2]))""", package=""),
    _python("multiprocessing, Pool closed after use", """
import multiprocessing
def go():
    with multiprocessing.get_context('fork').Pool(2) as pool:
        total = sum(pool.map(abs, [-1, -2])); pool.close(); pool.join()
    return total""", package=""),
    Subject("hunchentoot, serving", """
(defvar cl-user::*server* (hunchentoot:start (make-instance 'hunchentoot:easy-acceptor :port 8318 :address "127.0.0.1")))""",
        "(hunchentoot:started-p cl-user::*server*)", language="sbcl", system="hunchentoot"),
    Subject("hunchentoot, stopped and its threads ended", """
(defvar cl-user::*server* (hunchentoot:start (make-instance 'hunchentoot:easy-acceptor :port 8319 :address "127.0.0.1")))
(hunchentoot:stop cl-user::*server*)
;; STOP wakes the listener with a connection of its own and does not wait for the thread that takes that one.
(loop repeat 3000
      while (find-if (lambda (each) (search "hunchentoot" (sb-thread:thread-name each))) (sb-thread:list-all-threads))
      do (sleep 0.01))""",
        "(hunchentoot:started-p cl-user::*server*)", language="sbcl", system="hunchentoot"),
    Subject("bordeaux-threads, running", """
(defvar cl-user::*thread* (bordeaux-threads:make-thread (lambda () (sleep 1000)) :name "worker"))""",
        "(bordeaux-threads:thread-alive-p cl-user::*thread*)", language="sbcl", system="bordeaux-threads"),
    Subject("bordeaux-threads, ended", """
(defvar cl-user::*thread* (bordeaux-threads:make-thread (lambda () 42) :name "worker"))
(bordeaux-threads:join-thread cl-user::*thread*)""",
        "(bordeaux-threads:thread-alive-p cl-user::*thread*)", language="sbcl", system="bordeaux-threads"),
)  # fmt: skip

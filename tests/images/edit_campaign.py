"""Edit real packages while they live, and compare every function on the heap with a fresh process.

Run as a program under an interpreter that has the packages: `edit_campaign.py PACKAGE COUNT SEED`. It copies
the package, imports all of it, and for each seeded edit takes it up in place. A fresh process loads the
edited copy and writes down all functions, class namespaces and simple values; each difference must be told.
Each edit is taken back, and the process must be as it was at the start. The last line that is printed is JSON
with the counts.
"""

import ast
import gc
import hashlib
import importlib
import json
import pkgutil
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

SIMPLE = (int, float, str, bytes, bool, type(None))
SKIPPED = ("__main__", "conftest")
# Parts of packages that need more than the package itself, or do something when they are imported.
LEFT_OUT = ("_winconsole", "tests", "testing", "drawing", "sansio.__main__")


def import_all(name):
    """Import a package and what is in it, as far as that works without more than itself."""
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not any(part in found.name for part in (*SKIPPED, *LEFT_OUT)):
            try:
                importlib.import_module(found.name)
            except Exception:  # noqa: BLE001 - it needs what is not installed
                continue


def described(code):
    """Return what a code object is, lines and columns included."""
    parts = [code.co_qualname, code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_flags]
    parts += [code.co_firstlineno, code.co_linetable]
    parts += [
        described(each) if type(each) is CodeType else repr(each)
        for each in code.co_consts
        if type(each) is not frozenset
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def value_of(value):
    return repr(value) if isinstance(value, SIMPLE) else type(value).__name__


def snapshot(root, name):
    """Describe the functions of the package on the heap, its classes and the simple values of its modules."""
    gc.collect()
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(root):
            defaults = [value_of(value) for value in each.__defaults__ or ()]
            named = {key: value_of(value) for key, value in (each.__kwdefaults__ or {}).items()}
            notes = sorted(each.__annotations__)
            found[
                repr(
                    (
                        each.__code__.co_qualname,
                        described(each.__code__),
                        defaults,
                        named,
                        notes,
                        each.__doc__,
                    )
                )
            ] += 1
        elif isinstance(each, type) and str(each.__module__).partition(".")[0] == name:
            found[repr((each.__module__, each.__qualname__, sorted(map(str, vars(each)))))] += 1
    for module in [each for key, each in sys.modules.items() if key.partition(".")[0] == name]:
        if type(module) is ModuleType:
            simple = {key: repr(each) for key, each in vars(module).items() if isinstance(each, SIMPLE)}
            found[repr((module.__name__, sorted(simple.items()), sorted(vars(module))))] += 1
    return found


def functions(tree):
    """Return the functions of a text that edits can be made in."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and len(node.body) > 1]


def edited(text, dice):
    """Return a text with one seeded edit and what it was; None where it cannot be made."""
    tree = ast.parse(text)
    found = functions(tree)
    if not found:
        return None
    node = dice.choice(found)
    lines = text.splitlines(keepends=True)
    kind = dice.choice(["return", "above", "inside", "local", "parameter"])
    last = node.body[-1]
    indent = " " * last.col_offset
    if kind == "above":
        lines.insert(min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1, "\n")
    elif kind == "inside":
        lines.insert(last.lineno - 1, f"{indent}edited_local = 1\n")
    elif kind == "return":
        lines.insert(last.end_lineno, f"{indent}return 'edited'\n")
    elif kind == "local":
        lines.insert(last.lineno - 1, f"{indent}edited_list = [each for each in (1, 2)]\n")
    else:
        return with_parameter(text, lines, node)
    return "".join(lines), f"{kind} {node.name}:{node.lineno}"


def with_parameter(text, lines, node):
    """Add a parameter that only a name can be given to."""
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or not arguments.args:
        return None
    ends = [*arguments.args, *arguments.defaults]
    ends += [each.annotation for each in arguments.args if each.annotation is not None]
    end = max(ends, key=lambda each: (each.end_lineno, each.end_col_offset))
    line = lines[end.end_lineno - 1].encode()
    cut = end.end_col_offset
    lines[end.end_lineno - 1] = (line[:cut] + b", *, edited_parameter=7" + line[cut:]).decode()
    del text
    return "".join(lines), f"parameter {node.name}:{node.lineno}"


def is_python(text):
    try:
        compile(text, "edited", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


class Campaign:
    """The edits of one package."""

    def __init__(self, name, seed):
        self.name, self.dice = name, random.Random(seed)
        self.home = Path(tempfile.mkdtemp(prefix="edited-"))
        origin = Path(str(importlib.import_module("importlib.util").find_spec(name).origin)).parent
        shutil.copytree(origin, self.home / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.root = str(self.home)
        self.counts: Counter[str] = Counter()
        self.wrong: list[object] = []

    def begin(self):
        """Load the copy, followed by the code of the image."""
        from gramercy.images.python import places
        from gramercy.images.python.reloading import Reloading

        places.project.append(self.root)
        sys.dont_write_bytecode = True
        sys.path.insert(0, self.root)
        self.reloading = Reloading()
        self.reloading.begin("auto")
        import_all(self.name)
        self.reloading.following.settle()
        self.start = snapshot(self.root, self.name)
        self.files = sorted({Path(each.path) for each in self.reloading.following.files.values()})

    def fresh(self):
        """Return what a fresh process has of the edited copy; None where it cannot import it."""
        words = [sys.executable, "-B", __file__, "--fresh", self.root, self.name]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        return Counter(json.loads(done.stdout)) if done.returncode == 0 else None

    def one(self):
        """Make one edit, compare, take it back, compare."""
        file = self.dice.choice(self.files)
        before = file.read_text(encoding="utf-8")
        made = edited(before, self.dice)
        if made is None or not is_python(made[0]):
            return False
        file.write_text(made[0], encoding="utf-8")
        fresh = self.fresh()
        told = self.reloading.freshen(may_run=True).edits
        if fresh is None:
            self.counts["breaks its own import"] += 1
        else:
            self.judge(f"{file.name} {made[1]}", fresh, told)
        file.write_text(before, encoding="utf-8")
        told = self.reloading.freshen(may_run=True).edits
        self.judge(f"{file.name} {made[1]} taken back", self.start, told, "back ")
        return True

    def judge(self, what, wanted, told, prefix=""):
        """Count an edit as exact, told or wrong."""
        now = snapshot(self.root, self.name)
        line = " ".join(told.values())
        has_remark = "failed" in told or "line " in line or "not:" in line or "goes on" in line
        if now == wanted:
            self.counts[f"{prefix}exact"] += 1
        elif has_remark:
            self.counts[f"{prefix}told"] += 1
        else:
            self.counts[f"{prefix}wrong"] += 1
            lost, more = list((wanted - now).elements())[:2], list((now - wanted).elements())[:2]
            self.wrong.append({"edit": what, "told": line, "lost": lost, "more": more})


def main(name, count, seed):
    campaign = Campaign(name, seed)
    try:
        campaign.begin()
        done = 0
        while done < count:
            done += campaign.one()
    finally:
        shutil.rmtree(campaign.home, ignore_errors=True)
    found = {"package": name, "things": sum(campaign.start.values()), **campaign.counts}
    sys.stdout.write(json.dumps({**found, "differ": campaign.wrong}) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--fresh":
        sys.path.insert(0, sys.argv[2])
        import_all(sys.argv[3])
        sys.stdout.write(json.dumps(snapshot(sys.argv[2], sys.argv[3])))
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

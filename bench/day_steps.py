"""The steps of a day in any project: open, ask, break, test, look, fix, rerun, undo, redo, and the disk.

`ours` goes through the default tools of gramercy, `theirs` through a shell. Both meet the same mistake in the
same file. The rerun calls what was held before the edits: a function in a list, a bound method, a command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.ways import Step

if TYPE_CHECKING:
    from bench.day_projects import Project

EVALUATE = {"python": "evaluate-python", "sbcl": "evaluate-lisp"}
MADE = "made.txt"
# Changes a value and writes a file: both go back together.
CHANGE = {
    "python": f"mark = 7\nopen('{MADE}', 'w').write('made')",
    "sbcl": (
        "(defparameter *mark* 7)\n"
        f'(with-open-file (out "{MADE}" :direction :output) (write-string "made" out))'
    ),
}
MARK = {"python": "mark", "sbcl": "*mark*"}
UNKNOWN = {"python": "NameError", "sbcl": "unbound"}
GREEN = r"^(?!.*\d+ (?:failed|error)).*\d+ passed"


def ours(project: Project) -> list[Step]:
    """Return the day with the tools of gramercy."""
    tool, language = EVALUATE[project.language], project.language
    tests = {"what": project.tests}
    load = {"load": True} if language == "sbcl" else {}
    opening = [Step("open", "load-system", {"system": project.system})] if project.system else []

    def edited(old: str, new: str) -> dict[str, object]:
        return {"path": project.file, "old": old, "new": new, **load}

    return [
        *opening,
        Step("open", tool, {"code": project.opening}),
        Step("ask", "find_definition", {"symbol": project.symbol}, project.file.rpartition("/")[2]),
        Step("break", "edit_file", edited(project.right, project.wrong)),
        Step("test", "run_tests", tests, r"[1-9]\d* (?:failed|error)"),
        Step("look at the error", tool, {"code": project.call}, project.error, fails=True),
        Step("look into a frame", "error_frames", {} if project.has_threads else {"frame": project.frame}),
        Step("fix", "edit_file", edited(project.wrong, project.right)),
        Step("rerun", tool, {"code": project.call}, project.value),
        Step("test again", "run_tests", tests, GREEN),
        Step("change", tool, {"code": CHANGE[language]}, disk={MADE: True}),
        *(_replayed(project) if project.has_threads else _undone(project)),
        Step("rerun at the end", tool, {"code": project.call}, project.value),
    ]


def _undone(project: Project) -> list[Step]:
    look = (EVALUATE[project.language], {"code": MARK[project.language]})
    return [
        Step("undo", "undo_last", {}, MADE, disk={MADE: False}),
        Step("see that it is undone", *look, UNKNOWN[project.language], fails=True),
        Step("redo", "rollback_image", {"checkpoint": "$redo"}, disk={MADE: True}),
        Step("see that it is redone", *look, "7"),
        Step("undo again", "undo_last", {}, MADE, disk={MADE: False}),
    ]


def _replayed(project: Project) -> list[Step]:
    look = (EVALUATE[project.language], {"code": MARK[project.language]})
    return [
        Step("undo", "undo_last", {"by": "replay"}, MADE, disk={MADE: False}),
        Step("see that it is undone", *look, UNKNOWN[project.language], fails=True),
    ]


def theirs(project: Project) -> list[Step]:
    """Return the same with a shell: every run is a new process, and opens the project again."""
    name = project.symbol.replace(":", ".").rpartition(".")[2]
    definer = "def" if project.language == "python" else "defun"
    edit = {"file_path": project.file}
    run = _run(project, project.call)
    change = _run(project, CHANGE[project.language])
    status = "git status --short"
    return [
        Step(
            "ask",
            "Bash",
            {"command": f"grep -n -A {project.after} '{definer} {name}\\b' {project.file}"},
            name,
        ),
        Step("break", "Edit", {**edit, "old_string": project.right, "new_string": project.wrong}),
        Step(
            "test",
            "Bash",
            {"command": project.shell_tests},
            r"\d+ failed|FAILED|\d+ error|Fail: +[1-9]|error while",
        ),
        Step("look at the error", "Bash", {"command": run}, project.error),
        Step("fix", "Edit", {**edit, "old_string": project.wrong, "new_string": project.right}),
        Step("rerun", "Bash", {"command": run}, project.value),
        Step("test again", "Bash", {"command": project.shell_tests}),
        Step("change", "Bash", {"command": change}, disk={MADE: True}),
        Step("undo", "Bash", {"command": f"rm {MADE}; {status}"}, disk={MADE: False}),
        Step("redo", "Bash", {"command": change}, disk={MADE: True}),
        Step("undo again", "Bash", {"command": f"rm {MADE}; {status}"}, disk={MADE: False}),
        Step("rerun at the end", "Bash", {"command": run}, project.value),
    ]


def _run(project: Project, code: str) -> str:
    """Return a command that opens the project and evaluates code, as a model writes it."""
    if project.language == "python":
        *before, last = code.splitlines()
        lines = [project.opening, *before, f"print({last})"]
        return "\n".join([".venv/bin/python - <<'END' 2>&1 | tail -60", *lines, "END"])
    forms = f"{project.opening}\n(print (progn {code}))"
    command = (
        'sbcl --noinform --non-interactive --eval "(require :asdf)" '
        "--eval '(push #p\"./\" asdf:*central-registry*)' "
        f"--eval '(asdf:load-system \"{project.system}\")' --load run.lisp 2>&1 | tail -60; rm run.lisp"
    )
    return f"cat > run.lisp <<'END'\n{forms}\nEND\n{command}"

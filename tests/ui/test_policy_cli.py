"""`gramercy policy` as a person uses it: real processes, data on stdout, the rest not."""

import json

import pytest

PROJECT = """\
[[rules]]
action = "deny"
tools = ["write_*"]
arguments = { path = "vendor/**" }
reason = "generated"
"""
MINE = """\
max_safety_level = "dangerous"

[[rules]]
action = "allow"
tools = ["write_file"]
"""


@pytest.fixture(name="policy")
def policy_fixture(gramercy, tmp_path):
    """Run `gramercy policy` in a project with rules, beside rules of the user."""
    home = tmp_path.parent / f"{tmp_path.name}-config"
    (home / "gramercy").mkdir(parents=True)
    (home / "gramercy" / "policy.toml").write_text(MINE)
    (tmp_path / "gramercy-policy.toml").write_text(PROJECT)

    def run(*arguments):
        return gramercy("policy", *arguments, XDG_CONFIG_HOME=str(home))

    return run


@pytest.mark.contract("journal.policy.show")
def test_the_rules_are_shown_in_their_order_with_their_places(policy, tmp_path):
    shown = policy("show").stdout.splitlines()
    assert shown[0] == (
        f"the project's, which may only tighten what follows ({tmp_path / 'gramercy-policy.toml'})"
    )
    assert shown[1] == "  line 1     deny   write_* where path is vendor/** (generated)"
    assert shown[3].startswith("yours, for every project (")
    assert shown[4:6] == ["  line 1     nothing above dangerous", "  line 3     allow  write_file"]
    assert shown[-1] == "  dangerous  ask"


@pytest.mark.contract("journal.policy.show")
def test_show_as_json_has_layers_rules_and_origins(policy):
    found = json.loads(policy("show", "--json").stdout)
    assert [layer["layer"] for layer in found["layers"]] == ["project", "user"]
    assert [layer["only_tightens"] for layer in found["layers"]] == [True, False]
    (rule,) = found["layers"][0]["rules"]
    assert rule["origin"] == {"layer": "project", "file": "gramercy-policy.toml", "line": 1, "number": 1}
    assert rule["arguments"] == {"path": "vendor/**"}


@pytest.mark.contract("journal.policy.show")
def test_why_names_the_rule_that_decides_and_what_the_others_say(policy):
    """No image is started for it, and what a call would need beside need not be typed."""
    done = policy("why", "write_file", "path=vendor/a.py")
    first, *others = done.stdout.splitlines()
    assert first.startswith("deny: rule 1 of gramercy-policy.toml:1 says deny (generated): ")
    assert (
        others[0] == "  the project's, which may only tighten what follows: deny, by gramercy-policy.toml:1"
    )
    assert others[1].startswith("  yours, for every project: allow, by ")
    assert others[2].endswith("ask, since write_file is dangerous")
    assert "judged by the arguments that are given" in done.stderr
    found = json.loads(policy("why", "write-file", "path=a.py", "content=", "--json").stdout)
    assert (found["action"], found["origin"]["layer"]) == ("allow", "user")
    assert found["layers"][0] == {"layer": "project", "says": None, "origin": None}


@pytest.mark.contract("trust.answers.exactly-written")
def test_a_closed_rule_is_shown_with_its_values_and_judged_by(gramercy, tmp_path):
    """A number and its text are told apart on the screen as well."""
    home = tmp_path.parent / f"{tmp_path.name}-closed"
    (home / "gramercy").mkdir(parents=True)
    rules = (
        '[[rules]]\naction = "allow"\ntools = ["notes__send"]\nexactly = { to = "ann", n = 3, m = "3" }\n'
        '[[rules]]\naction = "allow"\ntools = ["notes__stop"]\nexactly = {}\n'
    )
    (home / "gramercy" / "policy.toml").write_text(rules)

    def policy(*words):
        return gramercy("policy", *words, XDG_CONFIG_HOME=str(home)).stdout

    shown = policy("show").splitlines()
    assert shown[1].endswith('allow  notes__send with exactly to: "ann", n: 3, m: "3"')
    assert shown[2].endswith("allow  notes__stop without arguments")
    assert json.loads(policy("show", "--json"))["layers"][0]["rules"][0]["exactly"]["m"] == "3"
    same, more = '{"to": "ann", "n": 3, "m": "3"}', '{"to": "ann", "n": 3, "m": "3", "sudo": true}'
    assert policy("why", "notes__send", same, "--level", "dangerous").startswith("allow: rule 1 of ")
    assert policy("why", "notes__send", more, "--level", "dangerous").startswith("ask: no rule matches")


def test_why_knows_the_tools_of_both_languages_and_takes_the_word_for_others(policy):
    for name in ("evaluate-lisp", "evaluate-python"):
        assert policy("why", name).stdout.startswith("allow: no rule matches")
    unknown = policy("why", "notes__send")
    assert unknown.returncode == 2
    assert "Unknown tool" in unknown.stderr
    assert "--level" in unknown.stderr
    assert policy("why", "notes__send", "--level", "dangerous").stdout.startswith("ask: ")


def test_a_fault_in_a_file_ends_with_its_place(policy, tmp_path):
    (tmp_path / "gramercy-policy.toml").write_text('[[rules]]\naction = "refuse"\n')
    done = policy("show")
    assert done.returncode == 3
    assert "gramercy-policy.toml:1: rule 1: unknown action 'refuse'" in done.stderr


@pytest.mark.usefixtures("policy")
def test_tools_call_is_judged_by_the_layers_too(gramercy, tmp_path):
    """One guard for every command: the user's file allows what would be asked about."""
    file = tmp_path / "tools.py"
    file.write_text(
        "from gramercy import tool\n\n\n"
        '@tool(safety_level="dangerous")\ndef write_file(path: str) -> str:\n'
        '    """Write."""\n    return f"wrote {path}"\n'
    )
    home = str(tmp_path.parent / f"{tmp_path.name}-config")
    call = ("tools", "call", "--from", str(file), "write_file")
    assert gramercy(*call, "path=a.py", XDG_CONFIG_HOME=home).stdout == "wrote a.py\n"
    denied = gramercy(*call, "path=vendor/a.py", XDG_CONFIG_HOME=home)
    assert denied.returncode == 4
    assert "rule 1 of gramercy-policy.toml:1 says deny (generated)" in denied.stderr


@pytest.fixture(name="recorded")
def recorded_fixture(tmp_path):
    """Return the file of a journal in which a person approved a call and denied another."""
    from gramercy.journal.base import Facts, NewCall, Question, Ruling, State
    from gramercy.journal.opening import open_journal

    file = tmp_path.parent / f"{tmp_path.name}-journal.db"
    journal = open_journal(file)
    for path, approved in (("vendor/a.py", True), ("notes/b.md", False), ("vendor/c.py", True)):
        call = NewCall("1", "write_file", "dangerous", {"path": path, "content": ""}, project=str(tmp_path))
        key = journal.begin(call)
        journal.move(key, State.AWAITING, Facts(question=Question("?", "seal", {}, "")))
        ruling = Ruling(approved=approved, by="ann", seal="seal", refuser="" if approved else "person")
        journal.move(key, State.READY if approved else State.DENIED, Facts(ruling=ruling))
    call = NewCall("2", "notes__send", "dangerous", {}, project="/elsewhere")
    journal.note(call, State.DONE)
    journal.close()
    return str(file)


@pytest.mark.contract("journal.policy.try")
def test_rules_are_tried_on_what_was_recorded(policy, recorded):
    """The user's file allows write_file, the project's denies it in vendor."""
    lines = policy("try", "--journal", recorded).stdout.splitlines()
    assert lines[0].startswith("3 calls since 20")
    assert [line.split() for line in lines[2:5]] == [
        ["allowed", "asked", "denied"],
        ["approved", "by", "a", "person", "-", "-", "2"],
        ["denied", "by", "a", "person", "1", "-", "-"],
    ]
    assert lines[6] == "would be allowed, denied by a person then:"
    assert 'write_file {"content":"","path":"notes/b.md"}' in lines[7]
    assert lines[7].endswith("policy.toml:3)")
    assert lines[9] == "would be denied, approved by a person then:"


@pytest.mark.contract("journal.policy.try")
def test_another_file_is_tried_in_the_place_of_the_users(policy, recorded, tmp_path):
    other = tmp_path.parent / f"{tmp_path.name}-other.toml"
    other.write_text('[[rules]]\naction = "deny"\narguments = { path = "notes/**" }\n')
    found = json.loads(policy("try", str(other), "--journal", recorded, "--everywhere", "--json").stdout)
    assert found["counts"] == {
        "unasked": {"allow": 0, "ask": 1, "deny": 0},
        "approved": {"allow": 0, "ask": 0, "deny": 2},
        "denied": {"allow": 0, "ask": 0, "deny": 1},
    }
    assert [call["differs"] for call in found["calls"]] == [True, True, False, True]
    only = policy("try", str(other), "--journal", recorded, "--everywhere", "--tool", "notes__send").stdout
    assert "Judged by name and level alone, since --from names no file with them: notes__send" in only


def test_a_journal_without_calls_of_the_project_is_told(policy, recorded, tmp_path):
    (tmp_path / "inner").mkdir()
    done = policy("try", "--journal", recorded, "--project", "inner")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"no calls of {tmp_path / 'inner'} are recorded in the last 90 days" in done.stderr

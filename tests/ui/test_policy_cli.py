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

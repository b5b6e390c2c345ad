"""Which names of a project programs of the person read for something to run: one table, by class."""

from __future__ import annotations

import pytest

from gramercy.images.guarded import KINDS, is_unknown_directory, reader_of

CLASSES = {
    "git": [".git", "sub/.git/config", "lib/.git/hooks/pre-commit"],
    "gramercy": ["gramercy.toml", "gramercy-policy.toml", "backend/gramercy.toml"],
    "editor": [
        *(".vscode/tasks.json", "backend/.vscode/tasks.json", ".idea/workspace.xml", ".zed/tasks.json"),
        *("garden.code-workspace", ".helix/languages.toml", ".nvim.lua", ".nvim/init.lua", ".dir-locals.el"),
        *(".dir-locals-2.el", ".fleet/run.json", ".devcontainer/devcontainer.json", ".devcontainer.json"),
        *(".bsp/build.json", "garden.sublime-project", ".vim/plugin/x.vim"),
    ],
    "an agent reads": [
        *(".mcp.json", "backend/.mcp.json", ".claude/settings.json", ".cursor/mcp.json", "opencode.jsonc"),
        *(".qwen/settings.json", ".junie/mcp.json", ".trae/mcp.json", ".factory/hooks.json", ".augment/x"),
        *(".clinerules/hooks/PreToolUse", "crush.json", ".crush.json", ".aider.conf.yml", ".agents/x"),
        *(".claude/skills/x/SKILL.md", ".github/mcp.json", ".github/hooks/x.json"),
    ],
    "shell": [
        *(".envrc", ".envrc.local", "mise.toml", "mise.local.toml", ".mise.toml", ".mise/config.toml"),
        *("mise/config.toml", ".tool-versions", "flake.nix", "shell.nix", "devenv.nix"),
    ],
    "run programs from": [
        *(".venv/bin/python", "venv/bin/pip", "backend/.venv/pyvenv.cfg", ".tox/py312/bin/pytest"),
        *(".nox/tests/bin/python", ".direnv/python-3.12/bin/python", ".devenv/profile/bin/sh"),
        *("envs/main/lib/python3.12/site-packages/x.pth", "envs/main/pyvenv.cfg", ".pixi/envs/x"),
    ],
    "Python": ["sitecustomize.py", "src/usercustomize.py", "sitecustomize/__init__.py"],
    "commit": [
        *(".husky/pre-commit", ".githooks/pre-push", ".pre-commit-config.yaml", ".pre-commit-config.yml"),
        *("lefthook.yml", "lefthook.yaml", "lefthook.toml", "lefthook-local.yml", ".lefthook.yml"),
        *(".lefthook/pre-commit/x.sh", "lint-staged.config.mjs", "commitlint.config.js"),
    ],
    "package managers": [".cargo/config.toml", ".mvn/jvm.config", ".yarn/releases/y.cjs", ".pnpmfile.cjs"],
    "starts in the directory": [
        *(".vimrc", ".exrc", ".nvimrc", ".pylintrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".eslintrc.cjs"),
        *(".pdbrc", ".irbrc", ".Rprofile", ".config/mise.toml", ".config/lefthook.yml", ".toolofnextyearrc"),
    ],
    "agents obey": [
        *("AGENTS.md", "AGENTS.override.md", "AGENT.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md"),
        *("QWEN.md", "CRUSH.md", "CODEBUDDY.md", "WARP.md", ".rules", ".cursorrules", ".windsurfrules"),
        *(".roorules", ".roorules-code", ".goosehints", ".augment-guidelines", ".aiassistant/rules/x.md"),
        *(".github/copilot-instructions.md", ".github/instructions/py.instructions.md"),
        *(".github/prompts/x.prompt.md", ".github/agents/x.md", ".github/skills/x/SKILL.md"),
    ],
    "a service runs after a push": [
        *(".github/workflows/ci.yml", ".github/actions/build/action.yml", ".forgejo/workflows/ci.yml"),
        *(".gitea/workflows/ci.yml", ".gitlab-ci.yml", ".gitlab-ci.yaml", ".gitlab-ci/test.yml"),
        *(".gitlab/ci/test.yml", ".circleci/config.yml", "azure-pipelines.yml", "azure-pipelines-test.yaml"),
        *(".azure-pipelines/x.yml", ".travis.yml", "Jenkinsfile", "Jenkinsfile.release", "x.jenkinsfile"),
        *("bitbucket-pipelines.yml", ".woodpecker.yml", ".woodpecker/test.yml", ".drone.yml"),
        *(".drone.star", ".buildkite/pipeline.yml", "buildkite.yml", "appveyor.yml", ".cirrus.yml"),
        *(".semaphore/semaphore.yml", ".build.yml", ".builds/x.yml", ".teamcity/settings.kts"),
        *("buildspec.yml", "cloudbuild.yaml", ".tekton/push.yaml"),
    ],
}
PLAIN = [
    *(
        "src/app.py",
        "conftest.py",
        "tests/conftest.py",
        "Makefile",
        "pyproject.toml",
        "package.json",
        "a.pth",
    ),
    *(".gitignore", ".gitattributes", ".gitmodules", ".env", "mise/__init__.py", "workflows/ci.yml"),
    *(".pytest_cache/x", ".envrc.untrusted", ".vscode.untrusted-1a2b3c4d", "rc", "source"),
    *(".github/ISSUE_TEMPLATE/bug.md", ".github/CODEOWNERS", ".gitlab/merge_request_templates/x.md"),
    # Pages of a manual, which a documentation tool may write.
    *("docs/agents.md", "docs/providers/gemini.md", "docs/claude.md", "CONVENTIONS.md", "README.md"),
    *("AGENTS.md.untrusted", "skills/x/SKILL.md", "src/agents.py", "agents/__init__.py"),
]


@pytest.mark.parametrize("who", CLASSES)
@pytest.mark.contract("trust.later.classes", "trust.roads.classes")
def test_each_class_of_control_files_has_a_reader(who):
    """Trust: a list of names ages, so each class says who reads it, at any depth and in any case."""
    for name in CLASSES[who]:
        assert who in reader_of(name), name
        assert who in reader_of(f"deep/er/{name}"), name
        assert who in reader_of(name.upper()), name


@pytest.mark.contract("trust.later.classes")
def test_every_class_of_the_table_is_tried_here():
    """A class without an example would be believed."""
    readers = {reader_of(name) for names in CLASSES.values() for name in names}
    assert readers == {kind.reader for kind in KINDS}


@pytest.mark.parametrize("name", PLAIN)
def test_what_runs_only_by_name_has_no_reader(name):
    """A person who runs a test or a Makefile has named it; a question about it would teach to say yes."""
    assert reader_of(name) == ""


@pytest.mark.contract("trust.roads.classes")
def test_instructions_in_small_letters_count_at_the_top_alone():
    """Some agents read `agents.md` where they start; below that it is most often a page of a manual."""
    for name in ("agents.md", "claude.local.md", "crush.md", "Agents.md", "sub/Agents.md", "sub/CLAUDE.MD"):
        assert reader_of(name) == "agents obey as instructions", name


def test_a_directory_of_an_unknown_program_is_known_as_such():
    """What no table names yet is told, unless it is a cache."""
    assert is_unknown_directory(".agent-of-next-year")
    names = (".git", ".vscode", ".pytest_cache", ".my-cache", ".", "..", "src", ".vscode.untrusted")
    assert not any(map(is_unknown_directory, names))

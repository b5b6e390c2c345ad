"""Real images and real executors for the tools, and a paper image for what no real one can be made to say."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import click
import pytest

from gramercy.execution.executor import Executor
from gramercy.images.base import Reply
from gramercy.images.environment import Environment
from gramercy.images.opening import open_image
from gramercy.testing.image import MemoryImage
from gramercy.tools.registry import Registry
from gramercy.toolsets.core import register_core_tools, register_session_tools
from gramercy.toolsets.project import register_project_tools
from gramercy.toolsets.workspace import Workspace
from tests.support import saying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gramercy.execution.calls import ToolResult
    from gramercy.images.live import LiveImage

SANDBOX = shutil.which("bwrap") is not None
# Where the packages are installed that this project itself needs: real libraries to look into.
PACKAGES = (Path(click.__file__).parents[1],)
LANGUAGES = ("sbcl", "python")
# Where the pytest of these tests is, which stands for that of a project's environment.
PYTEST = Path(pytest.__file__).parents[1]
# Without the plugins that these tests need themselves: they take a second to load.
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def approve(tool: Any, arguments: Any) -> str:
    """Say yes to everything."""
    del tool, arguments
    return "approved"


@dataclass
class Desk:
    """An executor with all tools on one image and one project."""

    image: Any
    workspace: Workspace
    language: str = "sbcl"
    approver: Callable[..., Any] | None = approve
    registry: Registry = field(init=False)
    executor: Executor = field(init=False)

    def __post_init__(self) -> None:
        self.registry = registry = Registry()
        register_core_tools(registry, self.image, project=self.workspace)
        register_project_tools(registry, self.image, self.workspace)
        register_session_tools(registry, self.image, language=self.language, workspace=self.workspace)
        self.executor = Executor(registry, self.approver)

    def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Run a tool."""
        return self.executor.execute({"id": "call_1", "name": name, "arguments": arguments})

    def text(self, name: str, /, **arguments: Any) -> str:
        """Run a tool that must succeed and return its text."""
        result = self.call(name, **arguments)
        assert result.success, result.content
        return result.content

    def failure(self, name: str, /, **arguments: Any) -> str:
        """Run a tool that must fail and return its text."""
        result = self.call(name, **arguments)
        assert not result.success, result.content
        # A refusal also says what to do now, and a note stands below what went wrong.
        note = result.metadata.get("note")
        assert (
            result.content == (f"{result.error}\n\n{note}" if note else result.error)
            or result.metadata["denied"]
        )
        return result.content

    def evaluate(self, lisp: str, python: str) -> str:
        """Evaluate the code of the image's own language."""
        return self.text("eval_form", form=lisp if self.language == "sbcl" else python)

    def either(self, lisp: str, python: str) -> str:
        """Choose the word of the image's own language."""
        return lisp if self.language == "sbcl" else python


@pytest.fixture
def paper() -> MemoryImage:
    """Return an image that gives prepared answers, the same to everything."""
    return MemoryImage("sbcl", name="paper", replies=saying(Reply(ok=True)), capabilities=frozenset())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return an empty project directory."""
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def workspace(project: Path) -> Workspace:
    """Return the workspace of the project."""
    return Workspace(project)


@pytest.fixture
def paper_desk(paper: MemoryImage, workspace: Workspace) -> Desk:
    """Return a desk with the paper image."""
    return Desk(paper, workspace)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], LiveImage]]:
    """Return the shared image of a language, as after a reset; each starts when a test first wants it."""
    started: dict[str, LiveImage] = {}
    place = tmp_path_factory.mktemp("image-project")

    def image(language: str) -> LiveImage:
        if language == "sbcl" and shutil.which("sbcl") is None:
            pytest.skip("sbcl is not installed")
        if language not in started:
            started[language] = open_image(
                language, project=place, sandbox=SANDBOX, environment=Environment(paths=PACKAGES)
            )
        started[language].reset()
        return started[language]

    yield image
    for each in started.values():
        each.close()


@pytest.fixture(params=LANGUAGES)
def desk(request: pytest.FixtureRequest, images: Callable[[str], LiveImage], workspace: Workspace) -> Desk:
    """Return a desk for each language in turn, with a fresh image."""
    return Desk(images(request.param), workspace, request.param)


@pytest.fixture
def lisp_desk(images: Callable[[str], LiveImage], workspace: Workspace) -> Desk:
    """Return a desk with a fresh Lisp image."""
    return Desk(images("sbcl"), workspace)


@pytest.fixture
def python_desk(images: Callable[[str], LiveImage], workspace: Workspace) -> Desk:
    """Return a desk with a fresh Python image."""
    return Desk(images("python"), workspace, "python")


def write(project: Path, files: dict[str, str]) -> None:
    """Write the files of a project."""
    for name, content in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(dedent(content).lstrip("\n"), encoding="utf-8")


@pytest.fixture
def desk_on(project: Path) -> Iterator[Callable[..., Desk]]:
    """Open an image of the project, with its files, and a desk with all tools."""
    images: list[LiveImage] = []

    def opened(language: str, files: dict[str, str], *, paths: Any = (PYTEST,), **more: Any) -> Desk:
        if language == "sbcl" and shutil.which("sbcl") is None:
            pytest.skip("sbcl is not installed")
        write(project, files)
        environment = Environment(paths=tuple(paths), variables=ALONE) if language == "python" else None
        image = open_image(language, project=project, sandbox=SANDBOX, environment=environment, **more)
        images.append(image)
        return Desk(image, Workspace(project), language)

    yield opened
    for image in images:
        image.close()

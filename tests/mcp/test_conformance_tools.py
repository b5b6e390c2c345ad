"""The tools for the conformance suite: there in a checkout, asked for in vain from a wheel."""

from pathlib import Path

import pytest

from gramercy import Registry
from gramercy.errors import SourceError
from gramercy.workbench import serving


def test_a_checkout_has_the_tools_of_the_conformance_suite():
    """house.md: the command keeps working from a checkout."""
    registry = Registry()
    catalog = serving._fixtures(registry)
    assert registry.find("test_simple_text") is not None
    assert "test_simple_prompt" in catalog.prompts


def test_an_installed_package_says_that_a_checkout_is_needed(monkeypatch, tmp_path):
    """The wheel has no tests."""
    monkeypatch.setattr(serving, "__file__", str(tmp_path / "lib" / "gramercy" / "workbench" / "serving.py"))
    with pytest.raises(SourceError, match=r"needs a checkout of gramercy: .* tests/mcp/conformance_tools"):
        serving._fixtures(Registry())


def test_the_wheel_has_none_of_it():
    """What is not under src is not packaged."""
    assert not (Path(serving.__file__).parents[1] / "mcp" / "fixtures").exists()

"""The public ANSI test suite, form by form, in an image and in plain SBCL: no difference is ours."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

PLACE = "GRAMERCY_ANSI_TESTS"


@pytest.mark.slow
def test_every_form_of_the_public_suite_means_the_same_in_an_image():
    """Proof: form by form beside plain SBCL."""
    if PLACE not in os.environ:
        pytest.skip(f"the suite is in no package registry: set {PLACE} to a checkout of ansi-test")
    if shutil.which("sbcl") is None:
        pytest.skip("sbcl is not installed: apt-get install sbcl")
    from tests.images.ansi_forms import compare

    counts, different = compare(Path(os.environ[PLACE]))
    sys.stderr.write(f"{dict(counts)}\n")
    assert counts["forms"] > 15_000
    assert different == []

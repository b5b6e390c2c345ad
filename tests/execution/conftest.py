"""Settles how generated cases are run here: reproducible from the output alone, never against a clock."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("rooms", database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rooms")

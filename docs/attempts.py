"""The page that lists the attempts of the battery."""

# ruff: noqa: INP001 - documentation is not a package

from __future__ import annotations

from gramercy.ui.doctor.attempts import Where, attempts, groups

_PLACES = {Where.PREVIEW: "preview", Where.BARE: "project without such files", Where.LIVE: "evaluation"}


def attempts_page() -> str:
    """List each attempt with what holds it."""
    parts = [
        "\n# Attempts to get out of an image\n",
        f"`gramercy doctor --attack` makes these {len(attempts())} attempts in each language, most of them",
        "in an evaluation and again in a preview. *no* means: known not to be held there, for a reason that",
        "stands below its table. The fallback is Landlock of Linux 6.12 or newer, with a filter of calls.\n",
    ]
    for name, group in groups().items():
        parts += [f"## {group.title}\n", f"{group.holds} Against: {group.attacker}.\n"]
        parts += ["| id | attempt | made in | bubblewrap | fallback |", "|---|---|---|---|---|"]
        reasons = {}
        for each in group.attempt:
            place = "a scene" if each.stage else _PLACES.get(each.arena, "both")
            held = ["no" if sandbox in each.open else "held" for sandbox in ("bubblewrap", "landlock")]
            parts.append(
                f"| `{each.id.removeprefix(f'{name}.')}` | {each.name} | {place} | {' | '.join(held)} |"
            )
            if "no" in held:
                reasons[each.id] = each.open.get("landlock") or each.open["bubblewrap"]
        parts += ["", *(f"- `{key}`: {why}." for key, why in reasons.items()), ""]
    return "\n".join(parts)

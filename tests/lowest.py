"""Print the lowest version of every range in pyproject.toml: `python -m tests.lowest [TORCH]`."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
BOUNDED = re.compile(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)(?:,<\d+)?")


def ranges(path: Path = PROJECT) -> dict[str, str]:
    """Return the lowest version of every package that electrify and its extras name."""
    project = tomllib.loads(path.read_text())["project"]
    extras = project["optional-dependencies"].values()
    named = [*project["dependencies"], *(one for extra in extras for one in extra)]
    found = {one: BOUNDED.fullmatch(one) for one in named if not one.startswith("electrify[")}
    if unbounded := [one for one, match in found.items() if match is None]:
        raise SystemExit(f"no lowest version: {', '.join(unbounded)}")
    return {match[1]: match[2] for match in found.values() if match}


def main(torch: str = "") -> None:
    """Print the constraints, with another version of torch if one is given."""
    lowest = ranges() | ({"torch": torch} if torch else {})
    print("\n".join(f"{name}=={version}" for name, version in lowest.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])

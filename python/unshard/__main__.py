"""python -m unshard: the command."""

from __future__ import annotations

import os
import shutil
import sys

from ._library import HERE


def main() -> None:
    own = HERE / "unshard"
    program = str(own) if own.exists() else os.environ.get("UNSHARD_COMMAND") or shutil.which("unshard")
    if not program or os.path.realpath(program) == os.path.realpath(sys.argv[0]):
        sys.exit("unshard: the command is not installed")
    os.execv(program, ["unshard", *sys.argv[1:]])


if __name__ == "__main__":
    main()

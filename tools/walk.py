"""Follow one command through the code: which files it enters, and how often the next new file lies in another folder.

    python tools/walk.py train glyphs c2-ccp --set train.max_steps=10 --out runs/walk

prints the files of the package in the order in which a function of theirs first runs. Imports do not count.
"""

import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = "/ccp_dml/"
IGNORED = {"<module>", "<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"}


def walk(arguments: list[str]) -> list[str]:
    """Run a command and list the files it enters, each once."""
    from ccp_dml.cli import main

    entered: dict[str, None] = {}
    class_bodies: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or PACKAGE not in code.co_filename or code.co_name in IGNORED or code in class_bodies:
            return
        if not code.co_filename.endswith(".py"):  # a template of a page
            return
        if "__module__" in code.co_names and code.co_argcount == 0 and "__qualname__" in code.co_names:
            class_bodies.add(code)  # a class is being defined: part of an import
            return
        entered.setdefault(code.co_filename.rpartition(PACKAGE)[2])

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        main(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(entered)


if __name__ == "__main__":
    files = walk(sys.argv[1:])
    folders = [str(Path(name).parent) for name in files]
    changes = sum(one != other for one, other in pairwise(folders))
    print(*files, sep="\n")
    print(f"{len(files)} files, {changes} changes of folder, {len(set(folders))} folders")

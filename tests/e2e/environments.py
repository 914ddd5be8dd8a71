"""An environment for each program of programs/, made when it is first wanted and kept ($UNSHARD_PROGRAMS)."""

import ast
import hashlib
import os
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "programs"
PLACE = Path(os.environ.get("UNSHARD_PROGRAMS", Path(__file__).parent / ".cache/programs"))


def constants(name):
    """PACKAGE, REQUIRES, EQUAL, BUILD and SOURCE of a program, and what it does, without running it. BUILD: what building
    it requires, and the environment in which it is built. SOURCE: a package, and the folder of its source archive that
    is unpacked into "source" of the environment, because installing it leaves that out."""
    tree, out = ast.parse((HERE / f"{name}.py").read_text()), {"BUILD": {"requires": [], "environment": {}}, "SOURCE": None}
    out["DOES"] = ast.get_docstring(tree)
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            names = [t.id for t in target.elts] if isinstance(target, ast.Tuple) else [target.id]
            values = ast.literal_eval(node.value)
            out |= dict(zip(names, values)) if isinstance(target, ast.Tuple) else {names[0]: values}
    return out


def environment(name):
    """A Python that has what this one has, and in front of that what the program requires, to the last version."""
    requires, build, source = (constants(name)[key] for key in ("REQUIRES", "BUILD", "SOURCE"))
    if not requires:
        return sys.executable
    digest = hashlib.sha256(repr((sys.version, requires, *(source or ()))).encode()).hexdigest()[:12]
    where = PLACE / f"{name}-{digest}"
    python = where / "bin/python"
    if not (where / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", where], check=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(where), "platbase": str(where)}))
        (packages / "zz_beneath.pth").write_text(sysconfig.get_path("purelib") + "\n")
        sources = ["--no-build-isolation", "--no-binary", constants(name)["PACKAGE"]] if build["requires"] else []
        for wanted in filter(None, (build["requires"], [*sources, *requires])):
            done = subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *wanted], capture_output=True,
                                  text=True, env={**os.environ, **build["environment"]})
            assert done.returncode == 0, done.stderr[-3000:]
        if source:
            unpack(python, *source, where / "source")
        (where / "complete").touch()
    return str(python)


def unpack(python, package, folder, into):
    with tempfile.TemporaryDirectory() as top:
        done = subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", top, package],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        with tarfile.open(next(Path(top).iterdir())) as archive:
            for member in archive.getmembers():
                inside = member.name.partition("/")[2]
                if inside.startswith(f"{folder}/"):
                    member.name = inside.removeprefix(f"{folder}/")
                    archive.extract(member, into)


def functions(name):
    """Of a program, to be called in an environment that has what they import."""
    return runpy.run_path(str(HERE / f"{name}.py"))

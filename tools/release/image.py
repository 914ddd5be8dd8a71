#!/usr/bin/env python3
"""Makes an image for containers from Debian packages, without a daemon: a tarball in OCI's layout, which
`skopeo copy oci-archive:FILE` and `podman load` take, with the manifest that `docker load` reads.

Usage: image.py OUT VERSION SYSTEM.deb... -- UNSHARD.deb...

Two layers: the libraries, then unshard. Maintainers' scripts do not run, so there is no shell in it: the entry point
is the command. The same packages are the same bytes: all times are $SOURCE_DATE_EPOCH."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import PurePosixPath

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
MERGED = ("bin", "sbin", "lib", "lib64")  # in Debian 12, links to their namesakes in usr
UNUSED = ("usr/share/man/", "usr/share/locale/", "usr/share/lintian/", "usr/share/bash-completion/", "usr/share/fish/",
          "usr/share/zsh/", "usr/lib/systemd/")


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def place(name):
    """Where a package's file lies in a system whose /lib is /usr/lib."""
    path = PurePosixPath(name)
    return str(PurePosixPath("usr") / path if path.parts and path.parts[0] in MERGED else path)


def field(package, name):
    return subprocess.run(["dpkg-deb", "-f", package, name], check=True, capture_output=True, text=True).stdout.strip()


class Layer:
    """Entries by path, each once: (tarfile.TarInfo, content)."""

    def __init__(self):
        self.entries = {}

    def add(self, path, content=b"", **fields):
        info = tarfile.TarInfo(path)
        info.mtime, info.size, info.mode = EPOCH, len(content), 0o644
        for name, value in fields.items():
            setattr(info, name, value)
        self.entries.setdefault(path, (info, content))

    def directory(self, path, mode=0o755):
        for parent in reversed(PurePosixPath(path).parents[:-1]):
            self.add(str(parent), type=tarfile.DIRTYPE, mode=0o755)
        self.add(path, type=tarfile.DIRTYPE, mode=mode)

    def package(self, deb):
        files = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            for info in archive:
                path = place(info.name)
                if path == "." or path.startswith(UNUSED) or (path.startswith("usr/share/doc/") and "copyright" not in path
                                                              and not info.isdir()):
                    continue
                if info.isdir():
                    self.directory(path, info.mode)
                    continue
                self.directory(str(PurePosixPath(path).parent))
                self.add(path, archive.extractfile(info).read() if info.isreg() else b"", type=info.type, mode=info.mode,
                         linkname=place(info.linkname) if info.islnk() else info.linkname)
        # What scanners of images read in place of dpkg's database.
        control = subprocess.run(["dpkg-deb", "-f", deb], check=True, capture_output=True).stdout
        self.directory("var/lib/dpkg/status.d")
        self.add(f"var/lib/dpkg/status.d/{field(deb, 'Package')}", control)

    def tar(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for path in sorted(self.entries):
                info, content = self.entries[path]
                archive.addfile(info, io.BytesIO(content) if info.isreg() else None)
        return out.getvalue()


def system_layer(debs):
    layer = Layer()
    for name in MERGED:
        layer.directory(f"usr/{name}")
        layer.add(name, type=tarfile.SYMTYPE, linkname=f"usr/{name}")
    for path, mode in (("tmp", 0o1777), ("root", 0o700), ("etc", 0o755), ("proc", 0o555), ("dev", 0o755), ("sys", 0o555)):
        layer.directory(path, mode)
    layer.add("etc/passwd", b"root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n")
    layer.add("etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    for deb in debs:
        layer.package(deb)
    return layer


def image(version, machine, layers):
    """{name in the layout: content}"""
    blobs = {}

    def blob(content, kind):
        blobs[f"blobs/{digest(content).replace(':', '/')}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(content), "size": len(content)}

    tars = [layer.tar() for layer in layers]
    packed = [blob(gzip.compress(tar, 9, mtime=0), "layer.v1.tar+gzip") for tar in tars]
    created = datetime.fromtimestamp(EPOCH, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = blob(json.dumps({
        "created": created, "architecture": machine, "os": "linux",
        "config": {"Entrypoint": ["/usr/bin/unshard"], "Cmd": ["--help"], "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
                   "Labels": {"org.opencontainers.image.title": "unshard", "org.opencontainers.image.version": version,
                              "org.opencontainers.image.licenses": "Apache-2.0"}},
        "rootfs": {"type": "layers", "diff_ids": [digest(tar) for tar in tars]},
        "history": [{"created": created, "created_by": what} for what in ("Debian's libraries", "unshard")],
    }).encode(), "config.v1+json")
    manifest = blob(json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
                                "layers": packed}).encode(), "manifest.v1+json")
    manifest["annotations"] = {"org.opencontainers.image.ref.name": version}
    return {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode(),
        "manifest.json": json.dumps([{  # of `docker save`
            "Config": f"blobs/{config['digest'].replace(':', '/')}", "RepoTags": [f"unshard:{version}"],
            "Layers": [f"blobs/{layer['digest'].replace(':', '/')}" for layer in packed]}]).encode(),
        **blobs}


def main():
    out, version = sys.argv[1:3]
    border = sys.argv.index("--")
    system, own = sorted(sys.argv[3:border]), sorted(sys.argv[border + 1:])
    layers = [system_layer(system), Layer()]
    for deb in own:
        layers[1].package(deb)
    with tarfile.open(out, "w") as archive:
        for name, content in sorted(image(version, field(own[0], "Architecture"), layers).items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), EPOCH
            archive.addfile(info, io.BytesIO(content))


main()

#!/usr/bin/env python3
"""Writes what the files of a version hold besides unshard's own code, as SPDX 2.3 in JSON.

Usage: sbom.py OUT VERSION COMMIT MACHINE.json... -- SYSTEM.deb...    OUT: the folder of what was made
MACHINE.json is portable.py's; SYSTEM.deb are the packages in the image. The document's time is $SOURCE_DATE_EPOCH."""

import hashlib
import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

LICENCES = {"cjson": "MIT", "fuse3": "LGPL-2.1-only", "libyaml": "MIT", "libzstd": "BSD-3-Clause OR GPL-2.0-only",
            "sqlite3": "blessing", "zlib": "Zlib"}


def spdx_id(*parts):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(parts))


def package(ident, name, version, licence, **further):
    return {"SPDXID": ident, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": "NOASSERTION",
            **further}


def of_debian(name, version):
    return [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
             "referenceLocator": f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}"}]


class Document:
    def __init__(self, version, commit):
        self.version, self.own = version, spdx_id("unshard", version)
        self.packages = {self.own: package(self.own, "unshard", version, "Apache-2.0")}
        self.relations = [("SPDXRef-DOCUMENT", "DESCRIBES", self.own)]
        self.commit = commit

    def file(self, path, contained):
        """One of the files that were made, and the packages in it."""
        ident = spdx_id("file", path.name)
        self.packages[ident] = package(ident, path.name, self.version, "NOASSERTION", packageFileName=path.name, checksums=[
            {"algorithm": "SHA256", "checksumValue": hashlib.sha256(path.read_bytes()).hexdigest()}])
        self.relations += [(ident, "CONTAINS", other) for other in (self.own, *contained)]

    def library(self, name, version, licence, purl):
        ident = spdx_id(name, version)
        self.packages[ident] = package(ident, name, version, licence, externalRefs=purl)
        return ident

    def text(self):
        created = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
        return json.dumps({
            "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"unshard-{self.version}",
            "documentNamespace": f"https://spdx.org/spdxdocs/unshard-{self.version}-{self.commit}",
            "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: unshard-tools-release"]},
            "packages": list(self.packages.values()),
            "relationships": [{"spdxElementId": a, "relationshipType": how, "relatedSpdxElement": b}
                              for a, how, b in self.relations]}, indent=1) + "\n"


def bundled(document, path):
    return [document.library(each["source"], each["version"], LICENCES[each["source"]],
                             of_debian(each["source"], each["version"])) for each in json.loads(path.read_text())]


def installed(document, deb):
    name, version = subprocess.run(["dpkg-deb", "-W", "--showformat", "${Package} ${Version}", deb], check=True,
                                   capture_output=True, text=True).stdout.split()
    return document.library(name, version, "NOASSERTION", of_debian(name, version))


def main():
    out, version, commit = Path(sys.argv[1]), *sys.argv[2:4]
    border = sys.argv.index("--")
    document = Document(version, commit)
    of_machine = {Path(name).stem: bundled(document, Path(name)) for name in sys.argv[4:border]}
    of_image = [installed(document, deb) for deb in sys.argv[border + 1:]]
    for path in sorted(out.iterdir()):
        machine = next((machine for machine in of_machine if machine in path.name), None)
        document.file(path, of_image if "image" in path.name else of_machine.get(machine, []))
    (out / f"unshard-{version}.spdx.json").write_text(document.text())


main()

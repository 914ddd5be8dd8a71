"""CephFS: a monitor, a metadata server and one disk, which is a file."""

import uuid

from file_system import ADDRESS, InNamespace


class Ceph(InNamespace):
    has_locks = True
    is_shown_on_open = True
    def start(self):
        self.conf = self.top / "ceph.conf"
        fsid = uuid.uuid4()
        self.conf.write_text(f"""[global]
fsid = {fsid}
mon host = [v2:{ADDRESS}:3300,v1:{ADDRESS}:6789]
auth cluster required = none
auth service required = none
auth client required = none
mon data = {self.path("mon")}
osd data = {self.path("osd")}
mds data = {self.path("mds")}
log file = {self.top}/$name.log
run dir = {self.path("run")}
admin socket = {self.top}/run/$cluster-$name.$pid.asok
pid file =
keyring = {self.top}/keyring
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
osd crush chooseleaf type = 0
osd objectstore = bluestore
bluestore block size = 8589934592
bluestore fsck on mount = false
osd memory target = 939524096
mon osd min in ratio = 0
mon data avail crit = 0
mon max pg per osd = 1000
""")
        (self.top / "keyring").write_text("")
        monmap = self.top / "monmap"
        self.run("monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a",
                 f"[v2:{ADDRESS}:3300,v1:{ADDRESS}:6789]", monmap)
        self.run("ceph-mon", "-c", self.conf, "--mkfs", "-i", "a", "--monmap", monmap)
        self.serve_monitor()
        osd = uuid.uuid4()
        self.ceph("osd", "new", osd)
        self.run("ceph-osd", "-c", self.conf, "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.serve_others()
        self.ceph("osd", "pool", "create", "meta", "8")
        self.ceph("osd", "pool", "create", "data", "16")
        self.ceph("fs", "new", "v", "meta", "data")
        self.wait_until(lambda: "up:active" in self.ceph("mds", "stat"), "a metadata server")

    def ceph(self, *command):
        return self.run("ceph", "-c", self.conf, *command)

    def serve_monitor(self):
        self.serve("ceph-mon", "-c", self.conf, "-f", "-i", "a")
        self.wait_until(lambda: self.listens(3300), "a monitor")

    def serve_others(self):
        self.serve("ceph-osd", "-c", self.conf, "-f", "-i", "0")
        self.serve("ceph-mds", "-c", self.conf, "-f", "-i", "a")

    def restart(self):
        self.serve_monitor()
        self.serve_others()

    def client_command(self, name, path):
        return ["ceph-fuse", "-c", self.conf, "-f", "--id", name, path]

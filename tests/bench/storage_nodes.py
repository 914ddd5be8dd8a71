"""Many nodes that list, load and load again one checkpoint of many ranks from a file system with real servers on this
machine (tests/e2e/storage): what they ask it for, without and with memos that one of them wrote. Each node is a client
of its own whose caches are empty. As nodes.py does it, whose file system is on this machine's disk."""

import os
import shutil
import statistics
import time
import xml.etree.ElementTree as ET

import nodes
import storage

import file_system  # noqa: E402  of tests/e2e/storage, which `storage` puts on the path
import juice_fs  # noqa: E402


class Juice:
    """Counted by each client: requests to the metadata server and for objects, bytes of objects."""

    def __init__(self, system):
        self.system = system

    def of_client(self, name):
        lines = (self.system.node(name) / ".stats").read_text().splitlines()
        found = {key: float(value) for key, value in (line.split() for line in lines)}
        objects = "juicefs_object_request_durations_histogram_seconds_"
        return (found["juicefs_meta_ops_durations_histogram_seconds_total"],
                sum(n for key, n in found.items() if key.startswith(objects) and key.endswith("_total")),
                found.get("juicefs_object_request_data_bytes_GET", 0))

    def began(self):
        pass

    def of_each(self, asked):
        """asked: (of_client when the node mounted, of_client at its end) of each node -> medians"""
        metadata, objects, size = (statistics.median(n) for n in zip(*(
            [now - was for was, now in zip(*both)] for both in asked)))
        return f"{metadata:.0f} + {objects:.0f}", size


class Gluster:
    """Counted by the three bricks, of all nodes together."""

    def __init__(self, system):
        self.system = system
        system.gluster("volume", "profile", "v", "start")

    def of_client(self, name):
        return None

    def of_bricks(self):
        found = ET.fromstring(self.system.gluster("--xml", "volume", "profile", "v", "info", "cumulative"))
        stats = found.findall(".//cumulativeStats")
        if len(stats) != 3:
            raise RuntimeError(f"{len(stats)} of 3 bricks answered")
        # Without the ends of opened files and directories, which --xml does not list.
        requests = sum(int(fop.findtext("hits")) for one in stats for fop in one.iter("fop"))
        return requests, sum(int(one.findtext("totalRead")) for one in stats)

    def began(self):
        self.before = self.of_bricks()

    def of_each(self, asked):
        """-> means"""
        requests, size = ((now - was) / len(asked) for was, now in zip(self.before, self.of_bricks()))
        return f"{requests:.0f}", size


COUNTED = {"juicefs": Juice, "glusterfs": Gluster}
PROGRAMS = {"juicefs": (juice_fs.juicefs(), "redis-server", "rclone"), "glusterfs": ("glusterd", "gluster", "glusterfs")}


class Step:
    def __init__(self, what):
        began = time.monotonic()
        self.found = what()
        self.s = time.monotonic() - began


def node(programs, system, counted, work, name, shared):
    """-> (its steps, what it asked for)"""
    top, at = work / name, system.node(name)
    top.mkdir()
    before = counted.of_client(name)
    steps = nodes.three_steps(programs, at, top, shared, Step)
    asked = before, counted.of_client(name)
    system.unmount(name)
    shutil.rmtree(system.top / "caches" / name, ignore_errors=True)
    shutil.rmtree(top)
    return steps, asked


def one_row(programs, kind, system, counted, work, want, n, shared):
    counted.began()
    of_nodes, asked = zip(*nodes.on_all(
        lambda i: node(programs, system, counted, work, f"{kind}-{n}-{shared}-{i}", shared), n))
    nodes.must_have(want, of_nodes)
    requests, size = counted.of_each(asked)
    seconds = " | ".join(f"{statistics.median(step.s for step in steps):.2f} s" for steps in zip(*of_nodes))
    print(f"| {kind} | {n} | {shared} | {requests} | {size / 1e6:.1f} MB | {seconds} |", flush=True)


def one_kind(programs, work, kind, run, want, ns):
    with storage.started(kind, work) as system:
        writer = system.node("writer")
        shutil.copytree(run, writer / "run")
        time.sleep(system.changes_seen_s + 1)
        nodes.write_memos(programs, writer)
        time.sleep(system.changes_seen_s)
        counted = COUNTED[kind](system)
        for n in ns:
            for shared in (nodes.WITHOUT, nodes.MEMOS):
                one_row(programs, kind, system, counted, work, want, n, shared)


def measure(programs, work, kinds, ns):
    kinds = kinds or list(COUNTED)
    if os.geteuid() != 0:
        raise SystemExit("storage-nodes: needs root, for a network of the servers' own")
    if unknown := set(kinds) - set(COUNTED):
        raise SystemExit(f"storage-nodes: nothing counts the requests of {', '.join(sorted(unknown))}")
    for kind in kinds:
        try:
            file_system.must_be_installed(*map(str, PROGRAMS[kind]))
        except AssertionError as e:
            raise SystemExit(f"storage-nodes: {e}") from None
    on_disk = work / "storage-nodes"
    nodes.write_run(on_disk / "run")
    want, size = nodes.shown(programs, on_disk, work / "storage-nodes-mount")
    print(f"\n## Nodes that load one checkpoint from real servers\n\n{size / 1e6:.1f} MB in {nodes.RANKS} shards; "
          f"{nodes.AT_ONCE} nodes at a time, each a client with empty caches, a mount and no metadata store. Requests and "
          f"bytes of a node, of all three steps: of juicefs the medians of what each client counts, to the metadata server "
          f"and for objects; of glusterfs the mean of what three bricks count. Seconds: medians.\n")
    print("| | nodes | shared | requests | bytes | mount and list | load | load again |\n|---|---:|---|---:|---:|---:|---:|---:|")
    for kind in kinds:
        one_kind(programs, work, kind, on_disk / "run", want, ns)

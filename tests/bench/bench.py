"""All measurements one after the other; see run."""

import argparse
import os
import tempfile
from pathlib import Path

import beside
import buckets
import computed
import delayed
import exports
import library
import listing
import loaders
import loads
import many
import nodes
import program_loads
import reads
import scale
import storage
import storage_nodes
import values
import ways
import zero

WHAT = ("reads", "ways", "delayed", "loads", "loaders", "beside", "library", "exports", "zero", "computed", "scale", "many",
        "nodes", "buckets", "values", "programs", "storage")
APART = ("storage-nodes", "listing")  # only if named


def arguments():
    parser = argparse.ArgumentParser(prog="tests/bench/run", description=__doc__)
    parser.add_argument("what", nargs="*", help=f"any of {', '.join(WHAT)}; all by default. Also "
                        "storage-nodes, as root and where the servers of juicefs and glusterfs are installed, and listing")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--long", action="store_true", help="also what takes long to make: of `many` the 405B with its "
                        "optimizer, ten minutes and 8 GB of disk")
    parser.add_argument("--rounds", type=int, help="of reading and of loading")
    parser.add_argument("--size", type=float, help="MB to read; twice as much is loaded")
    parser.add_argument("--options", nargs="*", default=(), help="of the mount, for loaders: cache=mount")
    parser.add_argument("--loaders", nargs="*", default=tuple(loaders.LOADERS), help="which of them")
    parser.add_argument("--programs", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--systems", nargs="*", choices=list(storage.KINDS), help="which distributed file systems. For "
                        "storage: sshfs and rclone by default, as the others need servers and root; for storage-nodes: "
                        "juicefs, glusterfs or, by default, both")
    parser.add_argument("--nodes", nargs="*", type=int, help="for storage-nodes: how many, one row after the other; "
                        "1, 8 and 64 by default")
    parser.add_argument("--gbit", nargs="*", type=float, default=[0], help="for storage: the network between servers and "
                        "clients, one after the other; 0: as fast as it gets. As root")
    parser.add_argument("--reads", nargs="*", default=["auto"], help="for storage: how the view reads shards, a row for each")
    found = parser.parse_args()
    unknown = set(found.what) - {*WHAT, *APART}
    if unknown:
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    return found


def main():
    args = arguments()
    n = args.rounds or (1 if args.quick else 7)
    size = int(1e6 * (args.size or (100 if args.quick else 512)))
    programs = args.programs.resolve()
    os.environ["UNSHARD_LIBRARY"] = str(programs.parent / "lib/libunshard.so.0")  # of the Python package
    with tempfile.TemporaryDirectory(prefix="unshard-bench-") as work:
        work = Path(work)
        if not args.what or "reads" in args.what:
            reads.measure(programs, work, size, n)
        if not args.what or "ways" in args.what:
            ways.measure(programs, work, args.rounds or (1 if args.quick else 5), args.quick)
        if not args.what or "delayed" in args.what:
            delayed.measure(programs, work, size, n)
        if not args.what or "loads" in args.what:
            loads.measure(programs, work, 2 * size, n, ["load_file"] if args.quick else loads.LOADERS)
        if not args.what or "loaders" in args.what:
            loaders.measure(programs, work, 2 * size, n, ["load_file", "torch"] if args.quick else args.loaders,
                            not args.quick, args.options)
        if not args.what or "beside" in args.what:
            beside.measure(programs, work, size, args.rounds or (1 if args.quick else 3), (1, 2) if args.quick else (1, 2, 4, 8))
        if not args.what or "library" in args.what:
            library.measure(programs, work, 2 * size, n)
        if not args.what or "exports" in args.what:
            exports.measure(programs, work, 2 * size, args.rounds or (1 if args.quick else 3), args.quick)
        if not args.what or "zero" in args.what:
            zero.measure(programs, work, 2 * size, args.rounds or (1 if args.quick else 3),
                         (2,) if args.quick else (2, 3))
        if not args.what or "computed" in args.what:
            computed.measure(programs, work, size, args.rounds or (1 if args.quick else 3), not args.quick)
        if not args.what or "scale" in args.what:
            scale.measure(programs, work, 1 if args.quick else 3, args.quick)
        if not args.what or "many" in args.what:
            many.measure(programs, work, args.quick, args.long)
        if not args.what or "nodes" in args.what:
            nodes.measure(programs, work, args.quick)
        if not args.what or "buckets" in args.what:
            buckets.measure(programs, work, 2 * size, n)
        if "listing" in args.what:
            listing.measure(programs, work, args.rounds or (1 if args.quick else 5), args.quick)
        if "storage-nodes" in args.what:
            storage_nodes.measure(programs, work, args.systems, args.nodes or ((1, 2) if args.quick else (1, 8, 64)))
        if not args.what or "values" in args.what:
            values.measure(programs, work, size, n)
        if not args.what or "programs" in args.what:
            program_loads.measure(programs, work, size if args.size else size // 2, args.rounds or (1 if args.quick else 3))
        if not args.what or "storage" in args.what:
            storage.measure(programs, work, size, n, args.systems, args.gbit, args.reads)


# Threads of torch that wait let others run: on a machine that has other work too, the tools would be slower.
os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", TQDM_DISABLE="1", OMP_WAIT_POLICY="passive")
main()

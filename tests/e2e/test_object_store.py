"""SOURCE in an object store: the same bytes as from a directory, whatever the store's requests do."""

import errno
import hashlib
import json
import os
import random
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

import objects
from conftest import ROOT, UNSHARD, detach, eventually, unshard
from objects import BUCKET, ID, SECRET, Proxy

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def moto():
    with objects.moto() as store:
        yield store


@pytest.fixture(scope="module")
def rclone(tmp_path_factory):
    with objects.rclone(tmp_path_factory.mktemp("rclone")) as store:
        yield store


@pytest.fixture(scope="module", params=["rclone", "ceph"])
def server(request, tmp_path_factory):
    """Two servers that people run, each in its own way: whose requests the tests' proxy makes fail."""
    if request.param == "rclone":
        yield request.getfixturevalue("rclone")
    elif objects.has_ceph():
        with objects.ceph(tmp_path_factory.mktemp("ceph")) as store:
            yield store
    else:
        pytest.skip("Ceph's object gateway is not installed (radosgw, ceph-mon, ceph-osd)")


@pytest.fixture
def before_server(server):
    before = Proxy(server)
    yield before
    before.close()


@pytest.fixture
def store(moto):
    yield moto
    moto.empty()


@pytest.fixture
def proxy(store):
    before = Proxy(store)
    yield before
    before.close()


@pytest.fixture
def mount_url(tmp_path):
    """mount_url(URL, environment, option...) -> the mount."""
    live = []

    def make(url, env, *options):
        path = tmp_path / f"objects{len(live)}"
        path.mkdir()
        unshard("mount", url, path, "-o", ",".join([*(options or ("settle=0",)), f"store={tmp_path}/objects.db"]),
                env=env)
        live.append(path)
        return path

    yield make
    for path in reversed(live):
        detach(path)


def sums(top):
    """What a tree holds: the sum of each file; of directories, that they are there."""
    found = {}
    for folder, _, files in os.walk(top):
        found[os.path.relpath(folder, top)] = None
        for name in files:
            with open(os.path.join(folder, name), "rb") as f:
                found[os.path.relpath(f.name, top)] = hashlib.sha256(f.read()).hexdigest()
    return found


def views_equal(store, mount, mount_url, source, prefix, address=None):
    directory, bucket = mount(source), mount_url(store.upload(source, prefix), store.environment(address))
    views = sorted(os.listdir(directory.path))
    assert views and views == sorted(os.listdir(bucket))
    for view in views:
        assert sums(directory / view) == sums(bucket / view), view
    return views


def exported(url, out, env, *options):
    unshard("export", url, out, "-o", "settle=0,store=none", *options, env=env)
    return sums(out)


@pytest.fixture
def golden(store, tmp_path):
    """The golden run: in the store, and what export makes of the directory."""
    url = store.upload(GOLDEN / "run", "runs/llama")
    return url + "/checkpoint-2", exported(GOLDEN / "run/checkpoint-2", tmp_path / "reference", None)


def test_every_view_has_the_bytes_that_a_directory_gives(store, mount, mount_url):
    assert "weights" in views_equal(store, mount, mount_url, GOLDEN / "run", "golden")


@pytest.mark.long
@pytest.mark.parametrize("launch, case", [("t2", "tied-f1-fp32"), ("h2", "z2-bf16"), ("h2", "z3-bf16")])
def test_every_view_of_a_trainers_run(store, mount, mount_url, made, launch, case):
    views_equal(store, mount, mount_url, made(launch, case) / "run", "made")


def test_the_command_takes_an_address(golden, store):
    url, _ = golden
    env = store.environment()
    listed = unshard("ls", f"s3://{BUCKET}/runs", "-o", "settle=0,store=none", env=env)
    assert listed.stdout.splitlines()[1].split()[:4] == [f"s3://{BUCKET}/runs/llama/checkpoint-2", "hf_fsdp", "2", "2"]
    shown = unshard("show", url, "-o", "settle=0,store=none", env=env)
    assert shown.stdout.splitlines()[0] == url and "12 tensors" in shown.stdout
    assert unshard("check", url, "--deep", "-o", "settle=0,store=none", env=env).returncode == 0


def test_a_server_that_checks_signatures(rclone):
    url = rclone.upload(GOLDEN / "run", "runs/a run & its=name+ü")
    listed = unshard("ls", url, "-o", "store=none", env=rclone.environment())
    assert listed.stdout.splitlines()[1].endswith("  ok") and "hf_fsdp     2      2" in listed.stdout
    refused = unshard("ls", url, env=rclone.environment(AWS_SECRET_ACCESS_KEY="another"), check=False)
    assert refused.returncode == 2 and "access is denied" in refused.stderr


def test_what_a_whole_bucket_and_other_addresses_are(golden, store, tmp_path):
    env = store.environment(UNSHARD_STORE=str(tmp_path / "facts.db"))
    for argv, sentence in ((("show", f"s3://{BUCKET}"), "is not a checkpoint, but 1 checkpoint is below it"),
                           (("show", "s3://"), "expected s3://BUCKET/PREFIX"),
                           (("ls", "https://host/run"), "does not say which files it has"),
                           (("mount", "gs://bucket/run", tmp_path), "AWS_ENDPOINT_URL and an HMAC key"),
                           (("export", "hf://bucket/run", tmp_path / "out"), "reads directories and s3://")):
        failed = unshard(*argv, env=env, check=False)
        assert failed.returncode == 2 and sentence in " ".join(failed.stderr.split()), failed.stderr


def test_what_latest_is_and_a_page_of_a_bucket(golden, store, tmp_path):
    env, quiet = store.environment(), ("-o", "settle=0,store=none")
    unshard("show", f"s3://{BUCKET}/", "--html", tmp_path / "page", *quiet, env=env)
    assert "checkpoint-2" in (tmp_path / "page").read_text()
    run = f"s3://{BUCKET}/runs/llama"
    assert unshard("diff", f"{run}/latest", f"{run}/checkpoint-2", *quiet, env=env).stdout.startswith("equal")


def test_facts_and_memos_of_an_address(store, proxy, mount_url, tmp_path):
    url = store.upload(GOLDEN / "run/checkpoint-2", "bare/checkpoint-2")  # without the run's config.json
    env, facts = store.environment(), ("--store", tmp_path / "facts.db")
    assert "config.json" not in exported(url, tmp_path / "without", env)
    unshard("meta", "set", url, f"model={GOLDEN / 'run'}", *facts, env=env)
    assert str(GOLDEN / "run") in unshard("meta", "get", url, "model", *facts, env=env).stdout
    unshard("export", url, tmp_path / "with", "-o", "settle=0", *facts, env=env)
    assert (tmp_path / "with/config.json").read_bytes() == (GOLDEN / "run/config.json").read_bytes()
    assert "all CRCs are known" in unshard("warm", url, "-o", "settle=0", *facts, env=env).stdout
    described = unshard("warm", url, "--write", tmp_path / "memos", "-o", "settle=0,store=none", env=env).stdout
    assert described.startswith(f"{url}: ")
    mnt = mount_url(f"s3://{BUCKET}/bare", store.environment(proxy.address), "settle=0", f"memos={tmp_path / 'memos'}")
    assert (mnt / "weights/checkpoint-2/model.safetensors").read_bytes() == (tmp_path / "without/model.safetensors").read_bytes()
    assert any(r.path.endswith(".distcp") for r in proxy.reads())
    assert not any(r.path.endswith("pytorch_model_fsdp_0/.metadata") for r in proxy.reads())


@pytest.mark.long
@pytest.mark.parametrize("launch, case", [("golden", None), ("h2", "z3-bf16")])
def test_every_view_of_a_server_whose_requests_fail(server, before_server, mount, mount_url, made, launch, case):
    """Every third request fails in passing, each time in another way."""
    ways = [objects.status(503, "SlowDown"), objects.short, objects.reset, objects.slow(0.2)]
    seen = []

    def every_third(handler, request, found):
        seen.append(request)
        return ways[len(seen) // 3 % len(ways)](handler, request, found) if len(seen) % 3 == 0 else found

    before_server.always = every_third
    source = GOLDEN / "run" if launch == "golden" else made(launch, case) / "run"
    views_equal(server, mount, mount_url, source, f"failing-{launch}", before_server.address)
    assert len(seen) >= 3 * len(ways)


@pytest.mark.long
def test_a_server_that_compares_clocks(server, before_server, tmp_path):
    """Of a process whose clock is an hour ahead."""
    (tmp_path / "ahead.c").write_text("""#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *out)
{
	long code = syscall(SYS_clock_gettime, id, out);
	out->tv_sec += id == CLOCK_REALTIME ? 3600 : 0;
	return (int)code;
}
""")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "ahead.so", tmp_path / "ahead.c"], check=True)
    url = server.upload(GOLDEN / "run", "runs/clocks") + "/checkpoint-2"
    want = exported(GOLDEN / "run/checkpoint-2", tmp_path / "reference", None)
    statuses = []

    def note(handler, request, found):
        statuses.append(found[0])
        return found

    before_server.always = note
    env = server.environment(before_server.address, LD_PRELOAD=str(tmp_path / "ahead.so"))
    assert exported(url, tmp_path / "out", env) == want
    assert statuses.count(403) == 1


def stale_once_replaced(path, store, key, body):
    """A file that is open while its object, which has this body, becomes another of the same size."""
    with open(path, "rb", buffering=0) as held:
        assert held.read(1) == body[:1]
        store.put(key, bytes(len(body)))
        held.seek(-1, os.SEEK_END)
        with pytest.raises(OSError) as failed:
            held.read(1)
        assert failed.value.errno == errno.ESTALE



@pytest.mark.long
def test_a_replaced_object_of_a_server(server, tmp_path, mount_url):
    """By the server's own If-Match, or by the ETag that it answers."""
    large = random.Random(3).randbytes(32 << 20)
    url = server.upload(GOLDEN / "run", "runs/replaced")
    server.put("runs/replaced/tokenizer.json", large)
    mnt = mount_url(url, server.environment())
    stale_once_replaced(mnt / "weights/checkpoint-2/tokenizer.json", server, "runs/replaced/tokenizer.json", large)


def test_a_repaired_copy_of_an_address(store, tmp_path):
    """A file that is cut, as one of a directory: what is wrong, what is made, and that nothing is written to the bucket."""
    source = tmp_path / "source/llama"
    shutil.copytree(GOLDEN / "run", source)
    state = source / "checkpoint-2/trainer_state.json"
    state.write_bytes(state.read_bytes()[:-20])
    url = store.upload(source, "cut") + "/checkpoint-2"
    keys = [(o["Key"], o["ETag"]) for o in store.client.list_objects_v2(Bucket=BUCKET, Prefix="cut/")["Contents"]]
    found = []
    for what, out, env in ((source / "checkpoint-2", tmp_path / "of-directory", None),
                           (url, tmp_path / "of-address", store.environment())):
        done = unshard("check", what, "--repair", out, "--json", "-o", "settle=0,store=none", env=env, check=False)
        told = json.loads(done.stdout)
        assert told["repaired"] == str(out), told
        found.append((done.returncode, [(c["kind"], os.path.basename(c["path"])) for c in told["changes"]], sums(out)))
    assert found[0] == found[1] and found[0][1]
    assert keys == [(o["Key"], o["ETag"])
                    for o in store.client.list_objects_v2(Bucket=BUCKET, Prefix="cut/")["Contents"]]


@pytest.mark.parametrize("fault", [
    pytest.param(objects.status(503, "SlowDown"), id="503"),
    pytest.param(objects.short, id="short"),
    pytest.param(objects.status(500, "InternalError"), id="500", marks=pytest.mark.long),
    pytest.param(objects.reset, id="reset", marks=pytest.mark.long),
    pytest.param(objects.slow(0.2), id="slow", marks=pytest.mark.long),
])
def test_what_passes_is_tried_again(golden, store, proxy, tmp_path, fault):
    url, want = golden
    seen = []

    def every_third(handler, request, found):
        seen.append(request)
        return fault(handler, request, found) if len(seen) % 3 == 1 else found

    proxy.always = every_third
    assert exported(url, tmp_path / "out", store.environment(proxy.address)) == want
    assert len(seen) > 3


def test_what_does_not_pass_is_an_error_that_names_the_object(golden, store, proxy, tmp_path):
    url, _ = golden

    def broken(handler, request, found):
        return found if request.is_list else objects.status(403, "AccessDenied")(handler, request, found)

    proxy.always = broken
    failed = unshard("export", url, tmp_path / "out", "-o", "settle=0,store=none",
                     env=store.environment(proxy.address), check=False)
    assert failed.returncode == 2 and "access is denied (AccessDenied)" in failed.stderr
    assert f"s3://{BUCKET}/runs/llama/" in failed.stderr
    assert not (tmp_path / "out").exists()


def test_a_replaced_object_is_stale_and_then_the_new_one(golden, store, mount_url):
    """Stale is what was not in memory yet: of a large file, its end."""
    large = random.Random(0).randbytes(32 << 20)
    store.put("runs/llama/tokenizer.json", large)
    mnt = mount_url(f"s3://{BUCKET}/runs", store.environment())
    folder = mnt / "weights/llama/checkpoint-2"
    before = (folder / "model.safetensors").read_bytes()
    key = "runs/llama/checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp"
    body = bytearray(store.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    stale_once_replaced(folder / "tokenizer.json", store, "runs/llama/tokenizer.json", large)
    elements = (before[at:at + 32] for at in range(len(before) - 32, 0, -4))
    body[next(body.find(e) for e in elements if any(e) and e in body)] ^= 1
    store.put(key, bytes(body))

    def is_new():
        try:
            return (folder / "model.safetensors").read_bytes() != before
        except OSError as e:
            assert e.errno == errno.ESTALE
            return False

    eventually(is_new)


def test_a_small_file_is_one_request(golden, store, proxy, mount_url):
    """Of a mount, whatever it is read for: what the command tells of the content, findings, headers of items, tensors."""
    mnt = mount_url(f"s3://{BUCKET}/runs", store.environment(proxy.address))
    folder = mnt / "weights/llama/checkpoint-2"
    for name in os.listdir(folder):
        (folder / name).read_bytes()
    reads = proxy.reads()
    paths = [r.path for r in reads]
    assert len([p for p in paths if p.endswith(".distcp")]) >= 2 and len(paths) == len(set(paths))
    sizes = {f"/{BUCKET}/{o['Key']}": o["Size"]
             for o in store.client.list_objects_v2(Bucket=BUCKET, Prefix="runs/")["Contents"]}
    assert sum(r.bytes() for r in reads) <= sum(sizes[p] for p in paths)
    assert all(r.headers["If-Match"] for r in reads)


def test_one_reader_has_several_requests_under_way(golden, store, proxy, mount_url):
    """A file of 100 MiB that a view shows as it is."""
    body = random.Random(1).randbytes(100 << 20)
    store.put("runs/llama/tokenizer.json", body)
    proxy.always = objects.slow(0.03)
    mnt = mount_url(f"s3://{BUCKET}/runs", store.environment(proxy.address))
    with open(mnt / "weights/llama/checkpoint-2/tokenizer.json", "rb") as f:
        before = len(proxy.reads())
        proxy.most_under_way = 0
        assert hashlib.file_digest(f, "sha256").digest() == hashlib.sha256(body).digest()
    reads = [r for r in proxy.reads()[before:] if r.path.endswith("/tokenizer.json")]
    assert proxy.most_under_way >= 3
    assert sum(r.bytes() for r in reads) == len(body)
    assert len(reads) <= 30


def test_checkpoints_are_looked_at_together(store, proxy):
    """A store that answers for a .metadata once it is asked for that of eight checkpoints: one after the other they would
    wait for ever."""
    names = [f"run-{i}/checkpoint-2" for i in range(8)]
    for name in names:
        store.upload(GOLDEN / "run/checkpoint-2", f"runs/{name}")
    together = threading.Barrier(len(names))

    def answer_together(handler, request, found):
        if request.path.endswith("fsdp_0/.metadata"):
            together.wait(timeout=60)
        return found

    proxy.always = answer_together
    listed = json.loads(unshard("ls", "--json", f"s3://{BUCKET}/runs", "-o", "settle=0,store=none",
                                env=store.environment(proxy.address)).stdout)
    assert [(c["path"], c["state"]) for c in listed] == [(name, "ok") for name in names]
    paths = [r.path for r in proxy.reads()]
    assert len(paths) == len(set(paths)) and len([p for p in paths if p.endswith("fsdp_0/.metadata")]) == len(names)


@pytest.mark.long
def test_2500_keys_are_three_requests(store, proxy):
    for i in range(2500):
        store.put(f"many/checkpoint-{i // 50}/file-{i % 50}", b"")
    unshard("ls", f"s3://{BUCKET}/many", "-o", "store=none", env=store.environment(proxy.address))
    assert len(proxy.lists()) == 3 and not proxy.reads()


def test_an_upload_is_hidden_until_it_rests(store, mount_url):
    url = store.upload(GOLDEN / "run", "runs/llama")
    store.client.delete_object(Bucket=BUCKET, Key="runs/llama/checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp")
    mnt = mount_url(url, store.environment(), "settle=3600")
    assert "checkpoint-2" not in os.listdir(mnt / "weights")
    listed = unshard("ls", url, "-o", "settle=3600,store=none", env=store.environment())
    assert listed.stdout.splitlines()[1].split()[-1] == "saving"


def test_secrets_are_nowhere(golden, store, proxy, mount_url, tmp_path):
    url, _ = golden
    token, log = "a.token.of.a.session.that.nobody.may.see", tmp_path / "log"
    env = store.environment(proxy.address, AWS_SESSION_TOKEN=token)
    mnt = mount_url(f"s3://{BUCKET}/runs", env, "settle=0", "debug", f"log={log}")
    (mnt / "weights/llama/checkpoint-2/model.safetensors").read_bytes()
    assert all(r.headers["x-amz-security-token"] == token for r in proxy.requests)
    proxy.always = objects.status(403, "SignatureDoesNotMatch")
    refused = unshard("ls", url, "-o", "debug,store=none", env=env, check=False)
    assert refused.returncode == 2
    told = [refused.stdout, refused.stderr, log.read_text(), Path("/proc/mounts").read_text()]
    told += [(mnt / ".unshard" / name).read_text() for name in ("stats.json", "metrics.prom", "errors.log",
                                                                "problems.txt")]
    told += [unshard("stats", mnt, env=env).stdout, unshard("mounts", env=env, check=False).stdout]  # other tests' mounts end
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "exe").resolve() == UNSHARD.resolve():
                told.append((process / "cmdline").read_bytes().decode())
        except OSError:
            pass  # it has ended
    for text in told:
        assert SECRET not in text and token not in text
    assert any("s3://" in text for text in told)


def test_a_clock_that_is_wrong_is_corrected_by_the_servers(golden, store, proxy, tmp_path):
    url, want = golden
    ahead = "Fri, 01 Jan 2100 00:00:00 GMT"

    def skewed(handler, request, found):
        if request.headers["x-amz-date"].startswith("21000101T"):
            return found
        return 403, {"Date": ahead}, b"<Error><Code>RequestTimeTooSkewed</Code></Error>"

    proxy.always = skewed
    assert exported(url, tmp_path / "out", store.environment(proxy.address)) == want
    assert sum(not r.headers["x-amz-date"].startswith("21000101T") for r in proxy.requests) == 1


def test_a_bucket_in_the_hosts_name(golden, store, proxy, tmp_path):
    """As some stores want it: s3.addressing_style of the profile."""
    url, want = golden
    config = tmp_path / "config"
    config.write_text("[default]\ns3 =\n    max_queue_size = 100\n    addressing_style = virtual\n")
    env = store.environment(proxy.address.replace("127.0.0.1", "localhost"), AWS_CONFIG_FILE=str(config))
    assert exported(url, tmp_path / "out", env) == want
    assert {r.headers["Host"].partition(":")[0] for r in proxy.requests} == {f"{BUCKET}.localhost"}
    assert not any(r.path.startswith(f"/{BUCKET}") for r in proxy.requests)


def test_an_address_with_a_path(golden, store, proxy, tmp_path):
    """A namespace before the bucket's name, as Hugging Face's buckets have one. moto, which has none, checks no signature."""
    url, want = golden
    proxy.namespace = "/name-space"
    assert exported(url, tmp_path / "out", store.environment(proxy.address + "/name-space/")) == want
    assert all(r.path.startswith(f"/name-space/{BUCKET}") for r in proxy.requests)


def test_a_web_identity_has_the_keys_of_a_role(golden, store, proxy, tmp_path):
    """Of moto's token service."""
    url, _ = golden
    token = tmp_path / "token"
    token.write_text("a.token.that.kubernetes.wrote\n")
    env = store.environment(proxy.address, AWS_ENDPOINT_URL_STS=store.address, AWS_ROLE_ARN="arn:aws:iam::1:role/reader",
                            AWS_WEB_IDENTITY_TOKEN_FILE=str(token))
    del env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]
    unshard("ls", url, "-o", "store=none", env=env)
    assert proxy.requests and all(r.headers["x-amz-security-token"] for r in proxy.requests)
    assert not any(f"Credential={ID}/" in r.headers["Authorization"] for r in proxy.requests)
    env["AWS_ENDPOINT_URL_STS"] = proxy.address  # which does not take the form
    failed = unshard("ls", url, "-o", "store=none", env=env, check=False)
    assert failed.returncode == 2 and "gives no credentials for AWS_ROLE_ARN" in " ".join(failed.stderr.split())
    assert token.read_text().strip() not in failed.stderr
    token.unlink()
    failed = unshard("ls", url, "-o", "store=none", env=env, check=False)
    assert failed.returncode == 2 and "AWS_WEB_IDENTITY_TOKEN_FILE" in failed.stderr


@pytest.mark.parametrize("line", ["sso_session = work", "role_arn = arn:aws:iam::1:role/reader", "credential_process = /bin/true"])
def test_a_profile_whose_keys_others_make_is_refused(golden, store, proxy, tmp_path, line):
    url, _ = golden
    config = tmp_path / "config"
    config.write_text(f"[profile work]\n{line}\n")
    env = store.environment(proxy.address, AWS_CONFIG_FILE=str(config), AWS_PROFILE="work")
    del env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]
    failed = unshard("ls", url, "-o", "store=none", env=env, check=False)
    said = " ".join(failed.stderr.split())
    assert failed.returncode == 2 and f'the profile "work" gets its access key by {line.split()[0]}' in said
    assert "export-credentials --profile work" in said and not proxy.requests


@pytest.mark.long
def test_a_build_without_libcurl(tmp_path):
    """What differs of it: lib/object/http_absent.c in the place of http.c, as CMake has it too."""
    cmake = subprocess.run(["cmake", "-S", ROOT, "-B", tmp_path / "build", "-DUNSHARD_S3=OFF",
                            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], capture_output=True, text=True, check=True)
    assert "Sources in object stores: not built" in cmake.stdout
    compiled = (tmp_path / "build/compile_commands.json").read_text()
    assert "/object/http_absent.c" in compiled and "/object/http.c" not in compiled
    build = UNSHARD.parent.parent
    subprocess.run(["cc", "-std=gnu11", "-I", ROOT / "lib", ROOT / "lib/object/http_absent.c",
                    *(build / "tools/CMakeFiles/unshard.dir").glob("*.o"), build / "lib/libunshard_page.a",
                    build / "lib/libunshard_fs.a", build / "lib/libunshard.a",
                    *"-lfuse3 -lzstd -lcjson -lz -lsqlite3 -lyaml -lm -ldl -lpthread".split(), "-o", tmp_path / "unshard"],
                   check=True)
    for argv in (("ls", "s3://bucket/run"), ("show", "s3://bucket/run"), ("export", "s3://bucket/run", tmp_path / "out")):
        failed = subprocess.run([tmp_path / "unshard", *argv], capture_output=True, text=True)
        assert failed.returncode == 2 and "built without access to object stores" in failed.stderr
    assert subprocess.run([tmp_path / "unshard", "ls", GOLDEN / "run", "-o", "store=none"]).returncode == 0


@pytest.mark.parametrize("where", ["machine", "container", "profile"])
def test_an_access_key_of_a_role_or_a_profile(golden, store, proxy, tmp_path, where):
    url, _ = golden
    file = tmp_path / "credentials"
    file.write_text(f"[default]\naws_access_key_id = another\n[mine]\naws_access_key_id = {ID}\n"
                    f"aws_secret_access_key={SECRET}\naws_session_token = a-session\n")
    with objects.role_service("a-session") as service:
        of = {"machine": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service, "AWS_EC2_METADATA_DISABLED": "false"},
              "container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{service}/container",
                            "AWS_CONTAINER_AUTHORIZATION_TOKEN": "of-this-container"},
              "profile": {"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_PROFILE": "mine"}}[where]
        env = store.environment(proxy.address, **of)
        del env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]
        unshard("ls", url, "-o", "store=none", env=env)
    for request in proxy.requests:
        assert f"Credential={ID}/" in request.headers["Authorization"]
        assert request.headers["x-amz-security-token"] == "a-session"
    assert proxy.requests

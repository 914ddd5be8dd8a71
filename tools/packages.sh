# Which system packages building and testing need, and how to install them. Sourced by
# tools/quickstart and tests/run; knows nothing of either.

# The oldest that unshard builds with; CMakeLists.txt has the same.
packages_debian_oldest="cmake=3.20 libfuse3-dev=3.14 libzstd-dev=1.4.8 libcjson-dev=1.7.14 zlib1g-dev=1:1.2.11 \
libsqlite3-dev=3.34 libyaml-dev=0.2.2 libcurl4-openssl-dev=7.74"

packages_debian_build="cmake ninja-build gcc pkg-config libfuse3-dev fuse3 libzstd-dev libcjson-dev \
zlib1g-dev libsqlite3-dev libyaml-dev libcurl4-openssl-dev"
packages_debian_library="gcc pkg-config libzstd-dev libcjson-dev zlib1g-dev libsqlite3-dev libyaml-dev libcurl4-openssl-dev \
python3-venv"
packages_debian_load="python3-venv"
packages_debian_unit="libcmocka-dev python3 locales"
packages_debian_mounts="python3-pytest strace procps fuse3"
packages_debian_release="debhelper dh-python dpkg-dev python3-venv debootstrap rpm"
packages_debian_packages="lintian systemd-container debootstrap rpm skopeo umoci qemu-user-static libc6-arm64-cross"
packages_debian_tests="python3-venv rsync strace unzip numactl rclone sshfs openssh-sftp-server zsh fish clang libclang-rt-dev \
clang-tidy cppcheck mold ccache"
# Of tests/run --long: a browser, and servers and clients of distributed file systems, which the tests start themselves.
packages_debian_long="chromium chromium-driver glusterfs-server glusterfs-client ceph-mon ceph-mds ceph-osd ceph-fuse ceph-common \
moosefs-master moosefs-chunkserver moosefs-client redis-server s3fs iproute2"
packages_fedora_build="cmake ninja-build gcc pkgconf-pkg-config fuse3-devel fuse3 libzstd-devel \
cjson-devel zlib-devel sqlite-devel libyaml-devel libcurl-devel"
packages_fedora_library="gcc pkgconf-pkg-config libzstd-devel cjson-devel zlib-devel sqlite-devel libyaml-devel libcurl-devel \
python3"
packages_fedora_load="python3"
packages_fedora_unit="libcmocka-devel python3 glibc-locale-source"
packages_fedora_mounts="python3-pytest strace procps-ng fuse3"
packages_fedora_release="dpkg-dev debhelper debootstrap rpm-build"
packages_fedora_packages="systemd-container debootstrap skopeo umoci qemu-user-static"
packages_fedora_tests="rsync strace unzip numactl rclone fuse-sshfs openssh-server zsh fish clang compiler-rt libasan libubsan \
libtsan clang-tools-extra cppcheck mold ccache"
packages_fedora_long="chromium chromedriver glusterfs-server glusterfs-fuse ceph-mon ceph-mds ceph-osd ceph-fuse redis s3fs-fuse iproute"

# packages_missing NAME...: those of a Debian list that are not installed.
packages_missing() {
	local name
	for name in "$@"; do
		dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null | grep -q "ok installed" || echo "$name"
	done
}

# Compiler run-time libraries carry the compiler's version in their name. A python3 that can make
# environments need not come from Debian.
packages_resolve() {
	local name
	for name in "$@"; do
		if [ "$name" = libclang-rt-dev ]; then
			apt-cache pkgnames libclang-rt- 2>/dev/null | grep -- '-dev$' | grep -v wasm |
				grep -- "-$(clang_version)-dev" || true
		elif [ "$name" != python3-venv ] || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
			echo "$name"
		fi
	done
}

# The major version of the clang that is installed, or of the one that "clang" would install.
clang_version() {
	{ clang --version 2>/dev/null || apt-cache depends clang 2>/dev/null; } |
		grep -oE 'version [0-9]+|clang-[0-9]+' | grep -oE '[0-9]+' | head -n 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

# Root, or sudo that does not ask, or somebody who can answer it.
may_become_root() {
	[ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }
}

# packages_too_old NAME...: those that this system has in an older version than is needed, with both.
packages_too_old() {
	local pair name has
	for pair in $packages_debian_oldest; do
		name=${pair%%=*}
		case " $* " in *" $name "*) ;; *) continue ;; esac
		has=$(apt-cache policy "$name" 2>/dev/null | sed -n 's/^ *Candidate: //p')
		if [ -n "$has" ] && [ "$has" != "(none)" ] && dpkg --compare-versions "$has" lt "${pair#*=}"; then
			echo "$name is $has (${pair#*=} is needed)"
		fi
	done
}

# packages_refuse_old LINE...: as packages_too_old prints them. pip brings a cmake; libfuse is for the mount alone. What
# tools/release/portable makes runs where glibc is not older than 2.30.
packages_refuse_old() {
	local glibc runs=""
	glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | grep -oE '[0-9.]+$' || true)
	dpkg --compare-versions "${glibc:-0}" lt 2.30 || runs="the wheel and the tarball of a release (docs/install.md)"
	if ! printf '%s\n' "$@" | grep -qvE '^(cmake|libfuse3-dev) '; then
		runs="${runs:+$runs, and }all but the mount (CMAKE_ARGS=-DUNSHARD_MOUNT=OFF pip install .)"
	fi
	printf 'this system is too old to build unshard: %s. Here runs: %s. Elsewhere, unshard export writes plain directories\n' \
		"$(printf '%s\n' "$@" | paste -sd, | sed 's/,/, /g')" "${runs:-neither the build nor a release}" >&2
}

# packages_install build [unit [tests]]: installs what is missing, or says the one line that would and
# returns 2.
packages_install() {
	local debian="" fedora="" kind var missing
	for kind in "$@"; do
		var=packages_debian_$kind
		debian="$debian ${!var}"
		var=packages_fedora_$kind
		fedora="$fedora ${!var}"
	done
	if ! command -v apt-get >/dev/null; then
		packages_by_hand "dnf install $fedora"
		return
	fi
	missing=$(packages_missing $(packages_resolve $debian))
	[ -n "$missing" ] || return 0
	if ! may_become_root; then
		echo "missing packages; type: sudo apt-get install -y --no-install-recommends" $missing >&2
		return 2
	fi
	as_root apt-get update -q || return 2
	local old=() line
	while IFS= read -r line; do old+=("$line"); done < <(packages_too_old $missing)
	if [ ${#old[@]} != 0 ]; then
		packages_refuse_old "${old[@]}"
		return 2
	fi
	echo "installing" $missing
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
}

# No apt-get: go on where everything is there already.
packages_by_hand() {
	local pc
	for pc in "fuse3 >= 3.14" libzstd libcjson zlib sqlite3 yaml-0.1; do
		if ! pkg-config --exists "$pc" 2>/dev/null; then
			echo "$pc is missing; as root: $1" >&2
			return 2
		fi
	done
	for pc in cmake ninja; do
		command -v $pc >/dev/null || command -v $pc-build >/dev/null || { echo "$pc is missing; as root: $1" >&2; return 2; }
	done
}

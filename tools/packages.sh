# Which system packages building and testing need, and how to install them. Sourced by
# tools/quickstart and tests/run; knows nothing of either.

packages_debian_build="cmake ninja-build gcc pkg-config libfuse3-dev fuse3 libzstd-dev libcjson-dev \
zlib1g-dev libsqlite3-dev libyaml-dev"
packages_debian_tests="libcmocka-dev python3-venv rsync strace unzip numactl rclone clang libclang-rt-dev \
clang-tidy cppcheck"
packages_fedora_build="cmake ninja-build gcc pkgconf-pkg-config fuse3-devel fuse3 libzstd-devel \
cjson-devel zlib-devel sqlite-devel libyaml-devel"
packages_fedora_tests="libcmocka-devel python3 rsync strace unzip numactl rclone clang compiler-rt libasan libubsan \
libtsan clang-tools-extra cppcheck"

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

# packages_install build [tests]: installs what is missing, or says the one line that would and
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
	if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
		echo "missing packages; as root: apt-get install -y" $missing >&2
		return 2
	fi
	echo "installing" $missing
	as_root apt-get update -q && as_root apt-get install -y -q --no-install-recommends $missing
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
	command -v cmake >/dev/null || { echo "cmake is missing; as root: $1" >&2; return 2; }
}

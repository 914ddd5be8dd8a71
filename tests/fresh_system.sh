# Systems as debootstrap makes them (minbase), for tests that install something. Sourced by tests/roots and tests/packages.
# Needs root, debootstrap and its mirror, overlayfs, /dev/fuse. UNSHARD_ROOTS=DIR keeps the roots there (build/roots).
# The system is at $scratch/root.

roots=${UNSHARD_ROOTS:-$PWD/build/roots}
scratch=$(mktemp -d)
mkdir -p "$roots"

root_made() { # root_made SYSTEM: once
	[ -e "$roots/$1.made" ] && return
	rm -rf "${roots:?}/$1"
	debootstrap --variant=minbase "$1" "$roots/$1" >"$roots/$1.log" 2>&1 && touch "$roots/$1.made"
}

# A system as debootstrap left it, at $scratch/root: what is written goes into a layer of its own.
system_begin() { # system_begin SYSTEM
	mkdir -p "$scratch"/{root,layer}
	mount -t tmpfs none "$scratch/layer" && mkdir "$scratch"/layer/{new,work} &&
		mount -t overlay -o "lowerdir=$roots/$1,upperdir=$scratch/layer/new,workdir=$scratch/layer/work" none "$scratch/root" &&
		mount --bind /dev "$scratch/root/dev" && mknod -m 666 "$scratch/layer/fuse" c 10 229 &&
		mount --bind "$scratch/layer/fuse" "$scratch/root/dev/fuse" && # for everybody, as udev makes it
		mount -t proc none "$scratch/root/proc" &&
		ln -sf ../proc/self/mounts "$scratch/root/etc/mtab" && # as the first start of a system makes it
		cp /etc/resolv.conf "$scratch/root/etc/resolv.conf" &&
		cp /etc/ssl/certs/ca-certificates.crt "$scratch/root/etc/machine.crt" && # those of this network's proxy too
		printf '[global]\ncert = /etc/machine.crt\n' >"$scratch/root/etc/pip.conf" &&
		echo 'Acquire::Check-Valid-Until "false";' >"$scratch/root/etc/apt/apt.conf.d/mirror" # it may be a snapshot
}

system_end() {
	local at
	for at in root/proc root/dev/fuse root/dev root layer; do
		! mountpoint -q "$scratch/$at" || umount -l "$scratch/$at"
	done
}
trap 'system_end; rm -rf --one-file-system "$scratch"' EXIT

inside() { # inside USER COMMAND: the command of a shell, in the environment of a login
	chroot "$scratch/root" su - "$1" -s /bin/bash -c "$2"
}

"""All kinds, by name. QUICK: tests/run has them; the others need servers that few machines have."""

from ceph_fs import Ceph
from gluster_fs import Gluster
from juice_fs import Juice
from moose_fs import Moose
from rclone_fs import Rclone
from s3_fs import RcloneS3, S3fs
from sshfs_fs import Sshfs

QUICK = {"sshfs": Sshfs, "rclone": Rclone}
KINDS = {**QUICK, "juicefs": Juice, "glusterfs": Gluster, "cephfs": Ceph, "moosefs": Moose, "s3fs": S3fs,
         "rclone-s3": RcloneS3}

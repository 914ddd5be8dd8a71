"""Programs that show a bucket as a directory: s3fs and rclone."""

import os

from juice_fs import KEY, NAME, SECRET, Gateway


class Bucket(Gateway):
    has_locks = False
    CACHE_S = 1
    changes_seen_s = 3
    is_bucket = True


class S3fs(Bucket):
    second_saves = ()  # while others read: test_s3fs_itself_shows_both_saves_in_a_file_that_is_open

    def client_command(self, name, path):
        keys = self.top / "keys"
        keys.write_text(f"{KEY}:{SECRET}\n")
        keys.chmod(0o600)
        return ["s3fs", NAME, path, "-f", "-o", f"passwd_file={keys},url=http://127.0.0.1:{self.PORT},"
                f"use_path_request_style,stat_cache_expire={self.CACHE_S}"]


class RcloneS3(Bucket):
    # rclone 1.60 loses a file that is renamed before its upload has ended, without unshard too.
    second_saves = ("truncated",)

    def client_command(self, name, path):
        remote = (f":s3,provider=Minio,access_key_id={KEY},secret_access_key={SECRET},"
                  f"endpoint='http://127.0.0.1:{self.PORT}':{NAME}")
        # Certificates that the environment names are for other servers; rclone 1.60 ends at them.
        return ["env", "-u", "AWS_CA_BUNDLE", "rclone", "mount", "--config", os.devnull, "--vfs-cache-mode", "writes", "--vfs-write-back", "0s",
                "--cache-dir", self.path("caches", name), "--dir-cache-time", f"{self.CACHE_S}s", "--poll-interval", "0",
                remote, path]

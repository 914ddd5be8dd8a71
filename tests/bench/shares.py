"""Rounds of several measurements that are to end within so many minutes, all together."""

import time


class Shares:
    """Each measurement has the same part of the time, and what those before it have left."""

    def __init__(self, minutes, parts):
        self.began, self.part_s, self.n = time.monotonic(), 60 * minutes / parts, 0

    def rounds(self, most, one_round):
        """-> what each round found: of the first one, and of further ones that, by the longest so far, end in time"""
        self.n += 1
        ends_at = self.began + self.n * self.part_s
        found, longest_s = [], 0
        while len(found) < most and (not found or time.monotonic() + longest_s <= ends_at):
            began = time.monotonic()
            found.append(one_round(len(found)))
            longest_s = max(longest_s, time.monotonic() - began)
        return found

"""What the group members written in Python share: the options, the file they write, and the word to stop.

See groups.py for the file.
"""

import signal
import sys
import time


class Member:
    """The options of a member, and its file."""

    def __init__(self):
        given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
        self.options = {name.removeprefix("--"): value for name, value in given.items()}
        self.file = open(self.options["out"], "a", encoding="utf-8", buffering=1)
        self.stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, _signal, _frame):
        self.stopping = True

    def say(self, *words):
        """Writes one line."""
        self.file.write("\t".join(str(word) for word in (time.time_ns() // 1_000_000, *words)) + "\n")

    def say_partitions(self, word, partitions):
        """Writes which partitions came or went."""
        self.say(word, ",".join(str(partition.partition) for partition in partitions))

"""The verbs that every client program of these tests has, and the file of jobs that runs many in one process."""

import sys

OPTIONS = {
    "write": ["topic", "codec", "acks", "file"],
    "read": ["topic", "partition", "offset", "count", "out"],
}


def lines_of(path):
    """The lines of a file without their newlines, whatever bytes they hold."""
    with open(path, "rb") as file:
        return file.read().removesuffix(b"\n").split(b"\n")


def main(verbs):
    """Runs one job given by options, or each line of a file of jobs. `verbs` maps a verb to bootstrap, *args -> None."""
    given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    bootstrap = given["--bootstrap"]
    verb = sys.argv[1]
    if verb != "jobs":
        verbs[verb](bootstrap, *(given["--" + name] for name in OPTIONS[verb]))
        return
    with open(given["--file"], encoding="utf-8") as jobs:
        for number, line in enumerate(jobs):
            words = line.rstrip("\n").split("\t")
            try:
                verbs[words[0]](bootstrap, *words[1:])
                print(f"ok\t{number}", flush=True)
            except Exception as error:  # the report is the point: any failure is this job's failure
                print(f"fail\t{number}\t{type(error).__name__}: {error}".replace("\n", " "), flush=True)

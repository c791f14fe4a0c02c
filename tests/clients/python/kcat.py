"""kcat: Debian's, with the librdkafka that Debian ships. One process per job, since kcat has no jobs of its own."""

import subprocess

import jobs

PATIENCE_S = 60


def write(bootstrap, topic, codec, acks, path):
    idempotent = acks == "idem"
    kcat("-P", "-b", bootstrap, "-t", topic, "-p", "0", "-z", codec, "-X", f"acks={'all' if idempotent else acks}",
         "-X", f"enable.idempotence={str(idempotent).lower()}", "-l", path)


def read(bootstrap, topic, partition, offset, count, out):
    with open(out, "wb") as file:
        kcat("-C", "-q", "-b", bootstrap, "-t", topic, "-p", partition, "-o", offset, "-c", count, out=file)


def names(bootstrap, path):
    """Every topic of a file is listed under exactly its name."""
    listed = kcat("-L", "-b", bootstrap).decode()
    for line in jobs.lines_of(path):
        name = line.split()[0].decode()
        if f'topic "{name}" with' not in listed:
            raise RuntimeError(f"kcat -L does not list {name}")


def kcat(*args, out=subprocess.PIPE):
    done = subprocess.run(["kcat", *args], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
                          timeout=PATIENCE_S, check=False)
    if done.returncode != 0 or b"ERROR" in done.stderr:
        raise RuntimeError(f"kcat {args[0]}: {done.returncode} {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


if __name__ == "__main__":
    jobs.main({"write": write, "read": read, "names": names})

"""Assembles the corpus: at least 100 MB and 1,000,000 lines of real text from what the machine has installed.

The same machine gives the same bytes: roots in a fixed order, files sorted. Lines are whatever stands in the files,
empty ones, very long ones and ones that are not UTF-8 among them.
"""

import hashlib
import os
import subprocess
import sys

BYTES_MIN = 110_000_000
LINES_MIN = 1_050_000
# No root gives everything, so that the corpus is not of one kind.
ROOT_BYTES_MAX = 45_000_000
# A line is a record; brokers and clients take 1 MiB by default.
LINE_BYTES_MAX = 900_000
TEXT = (".c", ".css", ".go", ".h", ".html", ".hpp", ".java", ".js", ".json", ".md", ".pl", ".pm", ".py", ".rs", ".s",
        ".scd", ".svg", ".toml", ".txt", ".xml")


def output_of(*command):
    """What a command prints, or nothing where it is missing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def roots():
    """Where text lies, the toolchains first, since they are there wherever the tests run."""
    sysroot = output_of("rustc", "--print", "sysroot")
    cargo = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    goroot = output_of("go", "env", "GOROOT")
    found = [
        os.path.join(sysroot, "share", "doc"),
        os.path.join(cargo, "registry", "src"),
        os.path.join(goroot, "src"),
        os.path.join(sysroot, "lib", "rustlib", "src"),
        "/usr/include",
        "/usr/share",
        os.path.join(goroot, "test"),
        "/usr/lib",
    ]
    return [root for root in found if root.startswith("/") and os.path.isdir(root)]


def texts(root):
    """The text files below a root, in a fixed order."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith(TEXT) and os.path.isfile(path) and not os.path.islink(path):
                yield path


def fits(text):
    """Whether a file can be part of the corpus: no line too long for a record."""
    return bool(text) and b"\0" not in text and max(map(len, text.split(b"\n"))) <= LINE_BYTES_MAX


def assemble(path):
    """Writes the corpus; gives its bytes, lines and hash."""
    size, lines, digest = 0, 0, hashlib.sha256()
    with open(path, "wb") as out:
        for root in roots():
            from_root = 0
            for source in texts(root):
                if from_root > ROOT_BYTES_MAX or (size >= BYTES_MIN and lines >= LINES_MIN):
                    break
                with open(source, "rb") as file:
                    text = file.read()
                if not fits(text):
                    continue
                text = text if text.endswith(b"\n") else text + b"\n"
                out.write(text)
                digest.update(text)
                from_root += len(text)
                size += len(text)
                lines += text.count(b"\n")
    if size < 100_000_000 or lines < 1_000_000:
        raise RuntimeError(f"only {size} bytes and {lines} lines of text on this machine, below {roots()}")
    return size, lines, digest.hexdigest()


if __name__ == "__main__":
    print(*assemble(sys.argv[1]))

# SPDX-License-Identifier: BSD-3-Clause
"""Sources and packages of Debian, unpacked into a folder of ours.

Nothing is installed and no setting of the system is changed: apt gets lists
and a cache of its own, so an ordinary user may do this too.
"""
import fcntl
import pathlib
import shutil
import subprocess

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = "http://deb.debian.org/debian"


class Missing(Exception):
    """Why something cannot be had here."""


def call(command, cwd, timeout=300):
    """Run a command; Missing with its last line if it fails."""
    try:
        done = subprocess.run(command, cwd=cwd, timeout=timeout, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took longer than {timeout} s") from None
    except OSError as error:
        raise Missing(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        lines = [x for x in done.stdout.splitlines() if x.startswith("E:")]
        lines = lines or done.stdout.strip().splitlines() or ["no text"]
        raise Missing(f"{command[0]}: {lines[0]}")
    return done.stdout


def release():
    """The name of the Debian that runs here."""
    words = {}
    for line in pathlib.Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        words[key] = value.strip('"')
    if words.get("ID") != "debian":
        raise Missing("this is not Debian")
    return words["VERSION_CODENAME"]


class Debian:
    """A folder with what was fetched; several processes may use it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = open(self.folder / "lock", "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.apt = None

    def close(self):
        self.lock.close()

    def options(self):
        """apt's options for its own lists, which are fetched first."""
        if self.apt is not None:
            return self.apt
        own = self.folder / "apt"
        for name in ("lists/partial", "cache/archives/partial"):
            (own / name).mkdir(parents=True, exist_ok=True)
        line = f"[signed-by={KEYRING}] {MIRROR} {release()} main\n"
        (own / "sources.list").write_text(f"deb {line}deb-src {line}")
        options = []
        for key, value in (("Dir::Etc::sourcelist", own / "sources.list"),
                           ("Dir::Etc::sourceparts", "-"),
                           ("Dir::State::lists", own / "lists"),
                           ("Dir::Cache", own / "cache"),
                           ("Debug::NoLocking", "1"),
                           ("APT::Sandbox::User", ""),
                           ("Acquire::Retries", "2")):
            options += ["-o", f"{key}={value}"]
        call(["apt-get", *options, "--error-on=any", "update"], self.folder)
        self.apt = options
        return options

    def source(self, package, *members):
        """The folder of a package's sources, as its authors published them:
        all of it, or the members that match one of the patterns."""
        place = self.folder / "source" / package
        if not place.exists():
            options = self.options()
            fresh = self.folder / "source" / f"{package}.new"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            call(["apt-get", *options, "source", "--download-only",
                  "--tar-only", package], fresh)
            for archive in fresh.glob("*.orig.tar.*"):
                call(["tar", "-xf", archive.name, "--wildcards", *members],
                     fresh)
                archive.unlink()
            fresh.rename(place)
        return next(x for x in place.iterdir() if x.is_dir())

    def packages(self, needed, alone=()):
        """A root with the packages and what they depend on and the system
        lacks, and with others without what these depend on."""
        place = self.folder / "root"
        done = place / (".has-" + "-".join([*needed, *alone]))
        if done.exists():
            return place
        options = self.options()
        archives = self.folder / "apt/cache/archives"
        call(["apt-get", *options, "install", "--download-only", "--yes",
              "--no-install-recommends", *needed], self.folder)
        for package in alone:
            call(["apt-get", *options, "download", package], archives)
        for package in sorted(archives.glob("*.deb")):
            call(["dpkg-deb", "-x", str(package), str(place)], self.folder)
        done.touch()
        return place

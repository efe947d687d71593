"""What a bare machine lacks is installed, or named in one line before anything is downloaded.

Runs packages.sh with an apt, a dpkg and a sudo of its own on the PATH.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = {
    "dpkg-query": 'for last; do :; done; grep -qx "$last" "$HERE/installed" && echo installed',
    "apt-cache": """
        if grep -qx "$2" "$HERE/known"; then found=1.0; else found="(none)"; fi
        echo "  Candidate: $found"
        for n in {1..20000}; do echo "     $n.0 500"; done  # more than a pipe holds
    """,
    "apt-get": """
        echo "apt-get $*" >>"$HERE/log"
        test "$1" != update || test ! -e "$HERE/fresh" || cat "$HERE/fresh" >>"$HERE/known"
    """,
    "sudo": 'test -e "$HERE/sudoers" || exit 1; shift; echo "sudo $*" >>"$HERE/log"; exec "$@"',
    "id": 'cat "$HERE/uid"',
}


@dataclass(frozen=True)
class Machine:
    here: Path

    def put(self, file: str, *lines: str) -> None:
        (self.here / file).write_text("".join(f"{line}\n" for line in lines))

    def run(self, *names: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(ROOT / "packages.sh"), *names],
            env={"PATH": f"{self.here / 'bin'}:/usr/bin:/bin", "HERE": str(self.here)},
            capture_output=True,
            text=True,
            check=False,
        )

    def done(self) -> list[str]:
        """What was called that changes something."""
        log = self.here / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/bash\n{text}\n")
        program.chmod(0o755)
    found = Machine(tmp_path)
    found.put("installed", "make")
    found.put("known", "libaio1", "chromium")
    found.put("uid", "1000")
    return found


INSTALL = "apt-get install -y -qq --no-install-recommends"


def test_f50_root_installs_what_is_missing_and_says_so(machine: Machine) -> None:
    machine.put("uid", "0")

    done = machine.run("make", "libaio1", "chromium")

    assert done.returncode == 0, done.stderr
    first, last = done.stderr.splitlines()
    assert first == "installing what is missing: libaio1 chromium"
    assert re.fullmatch(r"system packages: installed in \d+ s", last)
    assert machine.done() == ["apt-get update -qq", f"{INSTALL} libaio1 chromium"]


def test_f50_without_root_one_line_names_the_packages_and_nothing_is_done(machine: Machine) -> None:
    done = machine.run("make", "libaio1", "chromium")

    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert line.endswith("run: sudo apt-get install -y libaio1 chromium")
    assert machine.done() == []


def test_f50_sudo_that_asks_for_no_password_is_used(machine: Machine) -> None:
    machine.put("sudoers")

    done = machine.run("libaio1")

    assert done.returncode == 0, done.stderr
    assert [line for line in machine.done() if line.startswith("sudo")] == [
        "sudo true",
        "sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq",
        f"sudo env DEBIAN_FRONTEND=noninteractive {INSTALL} libaio1",
    ]


def test_what_is_there_takes_neither_root_nor_a_word(machine: Machine) -> None:
    machine.put("installed", "make", "libaio1")

    done = machine.run("make", "libaio1")

    assert (done.returncode, done.stderr, machine.done()) == (0, "", [])


@pytest.mark.parametrize(
    ("name", "renamed"), [("libaio1", "libaio1t64"), ("chromium", "chromium-browser")]
)
def test_f50_a_package_that_a_newer_distribution_renamed_is_found(
    machine: Machine, name: str, renamed: str
) -> None:
    machine.put("known", renamed)

    named = machine.run(name)
    machine.put("installed", renamed)
    there = machine.run(name)

    assert named.stderr.endswith(f"install -y {renamed}\n")
    assert (there.returncode, there.stderr) == (0, "")


def test_a_bare_machine_learns_the_names_first(machine: Machine) -> None:
    machine.put("uid", "0")
    machine.put("known")
    machine.put("fresh", "libaio1t64")

    machine.run("libaio1")

    assert machine.done()[-1] == f"{INSTALL} libaio1t64"


def test_an_install_that_fails_ends_everything(machine: Machine) -> None:
    machine.put("uid", "0")
    (machine.here / "bin" / "apt-get").write_text("#!/bin/bash\necho E: no network >&2; exit 100\n")

    done = machine.run("libaio1")

    assert done.returncode == 100
    assert "E: no network" in done.stderr


def test_where_there_is_no_dpkg_it_is_said_and_one_may_go_on(machine: Machine) -> None:
    bare = machine.here / "bare"
    bare.mkdir()
    for name in ("bash", "env"):
        (bare / name).symlink_to(f"/usr/bin/{name}")

    done = subprocess.run(
        ["/usr/bin/bash", str(ROOT / "packages.sh"), "libaio1"],
        env={"PATH": str(bare)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0
    assert "libaio1" in done.stderr


@pytest.mark.parametrize(
    ("target", "asks"),
    [
        ("demo", "libraries"),
        ("test", "packages"),
        ("test-logs", "packages"),
        ("test-stack", "packages"),
        ("test-proof", "packages"),
        ("test-long", "packages"),
    ],
)
def test_f50_packages_come_before_anything_is_downloaded(target: str, asks: str) -> None:
    lines = (ROOT / "Makefile").read_text("utf-8").splitlines()

    before = next(line for line in lines if line.startswith(f"{target}:")).split()[1:]
    recipe = lines[lines.index(f"{asks}:") + 1]

    assert before[:2] == [asks, "setup"]
    assert recipe.startswith("\t./packages.sh ")
    assert ("$$(cat apt.txt)" if asks == "packages" else "libaio1 libnuma1") in recipe

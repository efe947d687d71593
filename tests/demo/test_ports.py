import socket
import subprocess
import sys

from demo.ports import RANGE, SHARE, PortShare, free_ports

TOLD = "from demo.ports import free_ports; print(*free_ports(300)); input()"


def test_two_processes_are_never_given_the_same_port() -> None:
    """Though none of the ports is listened on yet."""
    with subprocess.Popen(
        [sys.executable, "-c", TOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = set(map(int, other.stdout.readline().split()))
        ours = set(free_ports(300))
        other.communicate("\n")

    assert len(theirs) == len(ours) == 300
    assert not theirs & ours


def test_no_port_is_given_twice_until_all_were() -> None:
    share = PortShare(range(20_000, 20_010))

    assert sorted(share.take() for _ in range(10)) == list(share.ports)
    assert share.take() in share.ports


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    with socket.socket() as taken:
        (port,) = free_ports(1)
        taken.bind(("127.0.0.1", port))

        found = free_ports(SHARE - 1)

    assert port not in found
    assert set(found) <= set(RANGE)

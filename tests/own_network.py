"""`python tests/own_network.py COMMAND…` runs a command in a network namespace of its own, whose only interface is
loopback: whatever it binds on all interfaces, nobody else can reach.

For engines that cannot be told to bind loopback alone. Linux, and root or CAP_SYS_ADMIN. Standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
IFF_UP = 0x1
IFREQ = "16sh22x"
"""A `struct ifreq` with flags: the interface's name, then them; 40 bytes."""


def within_own_network(command: Sequence[str]) -> list[str]:
    return [sys.executable, __file__, *command]


def why_not() -> str | None:
    """Why there can be no network namespace here; None if there can."""
    if sys.platform != "linux":
        return "a network namespace is a thing of Linux"
    tried = subprocess.run(within_own_network(["true"]), capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return None
    said = tried.stderr.strip().splitlines()
    return f"a network namespace cannot be made: {said[-1] if said else tried.returncode}; expected root"


def main(command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    raise_loopback()
    os.execvp(command[0], command)


def raise_loopback() -> None:
    """Up, with 127.0.0.1, which the kernel gives it then."""
    with socket.socket() as s:
        asked = fcntl.ioctl(s, SIOCGIFFLAGS, struct.pack(IFREQ, b"lo", 0))
        _, flags = struct.unpack(IFREQ, asked)
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack(IFREQ, b"lo", flags | IFF_UP))


if __name__ == "__main__":
    main(sys.argv[1:])

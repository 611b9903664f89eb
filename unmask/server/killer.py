"""A small process that ends this one when it does not end itself.

A thread in a long C call (a regular expression, a parser) may keep the interpreter, so that no signal handler and no other thread
of this process runs. What still happens is Python's own handler in C, which writes the number of the signal to a descriptor
(`signal.set_wakeup_fd`). The other end of it is read here, by a process of its own: from the first SIGTERM or SIGINT on it waits
`seconds`, then kills. When this process ends, the descriptor closes, and the other one ends too.
"""

import os
import signal
import subprocess
import sys

CODE = """
import os, select, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
parent, seconds = int(sys.argv[1]), float(sys.argv[2])
told = {signal.SIGTERM, signal.SIGINT}
deadline = None
while True:
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    ready, _, _ = select.select([0], [], [], left)
    if not ready:
        if os.getppid() == parent:
            os.kill(parent, signal.SIGKILL)
        break
    data = os.read(0, 64)
    if not data:
        break
    if deadline is None and told & set(data):
        deadline = time.monotonic() + seconds
"""


_started: list[subprocess.Popen] = []


def start(seconds: float) -> None:
    """From now on, a signal to stop ends this process `seconds` later at the latest."""
    if os.name != "posix":
        return
    reading, writing = os.pipe()  # neither end is inherited by other processes
    os.set_blocking(writing, False)
    command = [sys.executable, "-I", "-S", "-c", CODE, str(os.getpid()), str(seconds)]
    _started.append(subprocess.Popen(command, stdin=reading, env={}, start_new_session=True))
    os.close(reading)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

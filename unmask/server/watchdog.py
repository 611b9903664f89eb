"""A small process that kills the server if it does not exit in time after a signal.

A thread in a long C call (a regular expression, a parser) may hold the GIL, so that no signal handler and no other thread of
the server runs. Python's signal handler in C still runs and writes the signal number to a pipe (`signal.set_wakeup_fd`). The
watchdog reads the other end: after the first SIGTERM or SIGINT it waits `seconds` and then sends SIGKILL. When the server
exits, the pipe closes and the watchdog exits too.
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
    if deadline is None and {signal.SIGTERM, signal.SIGINT} & set(data):
        deadline = time.monotonic() + seconds
"""


_started: list[subprocess.Popen] = []  # kept alive: a collected Popen warns that its process still runs


def start(seconds: float) -> None:
    """Start the watchdog: SIGTERM or SIGINT ends this process after `seconds` at the latest."""
    if os.name != "posix":
        return
    reader, writer = os.pipe()  # other child processes inherit neither end
    os.set_blocking(writer, False)
    command = [sys.executable, "-I", "-S", "-c", CODE, str(os.getpid()), str(seconds)]
    _started.append(subprocess.Popen(command, stdin=reader, env={}, start_new_session=True))
    os.close(reader)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

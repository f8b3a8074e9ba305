"""Terminals that close, `nohup` and SIGHUP, with a real pseudo-terminal before the binary."""

import os
import pty
import signal
import subprocess

import pytest

from harness import binary, free_port, ready, wait_until


class Running:
    """The binary in a session of its own, with a terminal or without one; its log lies in a file."""

    def __init__(self, folder, terminal=True, before=()):
        self.folder = folder
        self.port = free_port()
        self.log = folder / "log"
        (folder / "config.toml").write_text('[server]\ndata_dir = "data"\n')
        command = [*before, binary(), "--config", "config.toml", "--listen", f"127.0.0.1:{self.port}"]
        environment = {**os.environ, "PLIMSOLL_CATALOGUE__URL": ""}
        self.master = None
        if terminal:
            self.pid, self.master = pty.fork()
            if self.pid == 0:
                self.become(command, environment)
        else:
            self.pid = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(self.log, "wb")).pid
        self.status = None
        wait_until(lambda: self.ended() or ready(self.port), "the proxy is ready")
        assert self.status is None, self.log.read_text()

    def become(self, command, environment):
        """In the child: the log goes to the file, all else to the terminal."""
        try:
            os.chdir(self.folder)
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 2)
            os.execvpe(command[0], command, environment)
        finally:
            os._exit(99)

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def close_terminal(self):
        os.close(self.master)
        self.master = None

    def says(self, words):
        return any(words in line for line in self.log.read_text().splitlines())

    def hang_up(self):
        os.kill(self.pid, signal.SIGHUP)

    def stop(self):
        if not self.ended():
            os.kill(self.pid, signal.SIGTERM)
            wait_until(self.ended, "the proxy ends")
        if self.master is not None:
            self.close_terminal()


@pytest.fixture
def start(tmp_path):
    running = []

    def begin(**how):
        running.append(Running(tmp_path, **how))
        return running[-1]

    yield begin
    for proxy in running:
        proxy.stop()


def test_a_terminal_that_closes_stops_the_proxy(start):
    proxy = start()
    proxy.close_terminal()
    wait_until(proxy.ended, "the proxy ends")
    assert proxy.status == 0
    assert proxy.says("stopping: waiting for running answers") and proxy.says('"signal":"SIGHUP"')
    assert not proxy.says("second stop signal"), "the kernel and a shell each send one"


def test_a_signal_from_elsewhere_reloads(start):
    proxy = start()
    proxy.hang_up()
    wait_until(lambda: proxy.says("reload: settings read again"), "a reload")
    assert not proxy.ended()


def test_without_a_terminal_the_signal_reloads(start):
    proxy = start(terminal=False)
    proxy.hang_up()
    wait_until(lambda: proxy.says("reload: settings read again"), "a reload")
    assert not proxy.ended()


def test_nohup_keeps_it_running(start):
    proxy = start(before=["nohup"])
    proxy.hang_up()
    proxy.close_terminal()
    # The signal of the kernel was sent before this answer.
    wait_until(lambda: ready(proxy.port), "the proxy answers")
    os.kill(proxy.pid, signal.SIGTERM)
    wait_until(proxy.ended, "the proxy ends")
    assert proxy.status == 0
    assert proxy.says('"signal":"SIGTERM"') and not proxy.says("SIGHUP"), "neither a stop nor a reload"

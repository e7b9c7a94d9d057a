"""One process at a time in a folder."""

import errno
import os
import socket
import threading
import time

import pytest

from lightning_fl import DataError
from lightning_fl.run import lock
from lightning_fl.run.lock import BusyError, held
from tests.holding import elsewhere


def test_the_second_process_is_told_who_holds_the_folder(tmp_path):
    folder = tmp_path / "run"
    with elsewhere(folder) as other:
        with pytest.raises(BusyError) as error, held(folder):
            pass
        assert str(error.value) == (
            f"{folder} is in use: process {other.pid} on {socket.gethostname()} trains into it; wait until it has "
            f"ended, or choose another folder (hydra.run.dir=FOLDER)."
        )
        with held(tmp_path / "another"):
            pass


def test_a_killed_process_gives_its_folder_back(tmp_path):
    with elsewhere(tmp_path) as other:
        other.kill()
        other.wait()
        with held(tmp_path):
            assert (tmp_path / ".holder").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_calls_of_one_process_are_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    with held(folder):
        with held(type(folder)("run"), wait=True):
            pass
        assert (folder / ".holder").exists()
    assert os.listdir(folder) == [".lock"]
    with elsewhere(folder):  # nobody holds it any more
        pass


def test_threads_are_not_alone_together(tmp_path):
    refused = []

    def try_it():
        try:
            with held(tmp_path):
                pass
        except BusyError as error:
            refused.append(str(error))

    with held(tmp_path):
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_who_waits_gets_it_in_the_end_and_says_for_whom(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lock, "_PATIENCE", 0.2)
    with elsewhere(tmp_path) as other:
        killer = threading.Timer(1.0, other.kill)
        killer.start()
        started = time.monotonic()
        with held(tmp_path, wait=True):
            assert time.monotonic() - started > 0.5
        killer.join()
    assert capsys.readouterr().err == (
        f"Waiting for process {other.pid} on {socket.gethostname()}, which is busy in {tmp_path} ...\n"
    )


def test_an_error_gives_it_back(tmp_path):
    with pytest.raises(RuntimeError), held(tmp_path):
        raise RuntimeError
    with elsewhere(tmp_path):
        pass


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(DataError, match="taken/run cannot be written: "), held(tmp_path / "taken" / "run"):
        pass


def test_a_file_stands_for_the_lock_where_the_file_system_has_none(tmp_path, monkeypatch, capsys):
    class Without(lock.FileLock):
        def acquire(self, *given, **more):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock, "FileLock", Without)
    with held(tmp_path), held(tmp_path, wait=True):
        assert (tmp_path / ".lock.held").exists()
        with pytest.raises(lock.Timeout):
            lock.acquired(tmp_path / ".lock")
    assert not (tmp_path / ".lock.held").exists()
    with held(tmp_path):
        pass
    assert capsys.readouterr().err == (
        f"{tmp_path} is on a file system without locks (No locks available): while a process uses it, .lock.held is "
        f"there; if one was killed, remove that file.\n"
    )

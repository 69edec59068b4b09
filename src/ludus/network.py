"""Whether a server answers, without waiting for it."""

from __future__ import annotations

import socket
import threading


def silence(host: str, port: int, seconds: float) -> str:
    """Why a server does not answer within some seconds; empty if it does.

    A thread asks: looking a name up has no time limit of its own, and may take a minute without a network.
    """
    told = ["no answer"]

    def ask() -> None:
        try:
            socket.create_connection((host, port), seconds).close()
        except OSError as error:
            told[0] = error.strerror or str(error)
        else:
            told[0] = ""

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return told[0]

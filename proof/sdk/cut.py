"""A proxy that closes every connection silently in the middle of the response."""

import socket
import struct
import threading

# Enough for the head and some chunks of a response, but not for all of it.
CUT_AFTER_BYTES = 3000
AT_ONCE = struct.pack("ii", 1, 0)  # closing sends a reset, as a lost network looks like


class Cut:
    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(self.target)
            threading.Thread(target=pass_on, args=(client, server), daemon=True).start()
            threading.Thread(target=answer, args=(client, server), daemon=True).start()


def pass_on(client, server):
    try:
        while data := client.recv(65536):
            server.sendall(data)
    except OSError:
        pass  # the other direction has cut


def answer(client, server):
    left = CUT_AFTER_BYTES
    try:
        while left > 0 and (data := server.recv(min(left, 512))):
            client.sendall(data)
            left -= len(data)
    except OSError:
        pass  # the client was faster
    for side in (client, server):
        try:
            side.shutdown(socket.SHUT_RDWR)  # wakes the other direction, which else keeps it open
        except OSError:
            pass  # it is gone already
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        side.close()

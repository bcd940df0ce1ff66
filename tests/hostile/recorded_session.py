"""What a client has said to a server, recorded, so that an attacker can say it too."""

import hashlib
import select
import socket
import struct
import threading


class Failed(Exception):
    """One line: what an honest client has noticed."""


def wait_for(one, what, seconds):
    waiting = select.poll()
    waiting.register(one, what)
    return bool(waiting.poll(seconds * 1000))  # False: it has not come


def id_bytes(text):
    """As a hello has what `pmstore session list` prints."""
    return bytes.fromhex(text)[::-1]


class Session:
    """What `pmstore ARGUMENTS` has said to a server, to be said in another connection.

    The server gives each connection a ring of its own, at another address and with another key.
    """

    HEADER = struct.Struct("<BBHIIIQQ")  # fabric/internal/frame.h
    BODIES = (1, 2, 4, 8)                # kinds of frames that have one
    WRITES = (1, 2)

    def __init__(self, server, *arguments, stdin=b""):
        self.refusal = b""  # of the last hello that was refused
        said, answered = bytearray(), bytearray()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            uri = f"tcp://127.0.0.1:{listener.getsockname()[1]}"

            def forward():
                client, _ = listener.accept()
                with client, socket.create_connection(("127.0.0.1", server.port)) as upstream:
                    to = {client: (upstream, said), upstream: (client, answered)}
                    while True:
                        for one in select.select([client, upstream], [], [])[0]:
                            data = one.recv(1 << 16)
                            if not data:
                                return
                            to[one][1].extend(data)
                            to[one][0].sendall(data)

            thread = threading.Thread(target=forward)
            thread.start()
            server.pmstore(*arguments, "--uri", uri, stdin=stdin)
            thread.join()
        self.frames = self.parts(said)
        self.handshake = [f for f in self.frames if f[0] == 8]
        self.requests = [f for f in self.frames if f[0] != 8]
        self.id_at = self.handshake[0].index(b"PSVC") + 8  # service/hello.h
        if self.id_of(self.part(self.id_at + 16)) != self.part(self.id_at):
            raise Failed("the hello does not have a secret and the id that follows from it")
        welcome = self.parts(answered)[0]
        _, _, _, _, _, _, self.address, self.key = self.HEADER.unpack_from(
            next(f for f in self.requests if f[0] in self.WRITES))
        self.address_at = welcome.find(struct.pack("<Q", self.address))
        self.key_at = welcome.find(struct.pack("<Q", self.key))
        if self.address_at < 0 or self.key_at < 0:
            raise Failed("the welcome does not have the ring that the client wrote to")

    @property
    def raw(self):
        return b"".join(self.frames)

    def part(self, at):
        return self.handshake[0][at:at + 16]

    @staticmethod
    def id_of(secret):
        return hashlib.sha256(secret).digest()[:16]

    def hello(self, secret, client=None):
        """The hello of the client with that secret, or of one that says to be another client."""
        client = client or self.id_of(secret)
        said = self.handshake[0]
        return said[:self.id_at] + client + secret + said[self.id_at + 32:]

    def parts(self, data):
        """Whole frames, header and body."""
        frames, at = [], 0
        while at + self.HEADER.size <= len(data):
            kind, _, _, size, *_ = self.HEADER.unpack_from(data, at)
            end = at + self.HEADER.size + (size if kind in self.BODIES else 0)
            frames.append(bytes(data[at:end]))
            at = end
        return frames

    def begin(self, one, hello, seconds=10):
        """The handshake in a connection that is new; gives the requests for it, None if refused."""
        try:
            wait_for(one, select.POLLOUT, seconds)
            one.send(hello)
            welcome = b""
            while len(welcome) < max(self.address_at, self.key_at) + 8:
                wait_for(one, select.POLLIN, seconds)
                data = one.recv(1 << 16)
                if not data:
                    return None
                welcome += data
            if b"PSVC" not in welcome:
                self.refusal = welcome
                return None
            one.send(b"".join(self.handshake[1:]))
        except OSError:
            return None
        address, = struct.unpack_from("<Q", welcome, self.address_at)
        key, = struct.unpack_from("<Q", welcome, self.key_at)
        requests = []
        for frame in self.requests:
            head = list(self.HEADER.unpack_from(frame))
            if head[0] in self.WRITES:
                head[6] += address - self.address
                head[7] = key
            requests.append(self.HEADER.pack(*head) + frame[self.HEADER.size:])
        return requests

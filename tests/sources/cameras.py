"""A network camera for tests: real RTSP over TCP, pictures by ffmpeg; it can be silenced, cut and brought back."""

import socket
import subprocess
import threading

SDP = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=test\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\nm=video 0 RTP/AVP 26\r\na=control:track\r\n"


class Camera:
    """Serves a moving test picture at rtsp://127.0.0.1:PORT/door to any who ask, each with an ffmpeg of its own."""

    def __init__(self, size="64x48", fps=25):
        self.size, self.fps = size, fps
        self.port = 0
        self.plays = 0
        self.silent = threading.Event()
        self._listener = None
        self._open = []
        self.start()

    @property
    def url(self):
        return f"rtsp://127.0.0.1:{self.port}/door"

    def start(self):
        """Listen, on the port it had."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def kill(self):
        """Refuse and cut, as a camera without power does."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def cut(self):
        """End all connections; new ones are taken."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        pictures = []
        lock = threading.Lock()
        try:
            with connection, connection.makefile("rb") as lines:
                while head := self._head(lines):
                    verb, number = head[0].split()[0], next(h for h in head if h.lower().startswith("cseq"))
                    more, body = self._answer(verb, head)
                    text = "\r\n".join(["RTSP/1.0 200 OK", number, "Session: 7", *more, "", body])
                    with lock:
                        connection.sendall(text.encode())
                    if verb == "PLAY":
                        self.plays += 1
                        pictures.append(self._play(connection, lock))
        except (OSError, ValueError, StopIteration):
            pass
        finally:
            for process in pictures:
                process.kill()
                process.wait()
            self._open.remove(connection)

    def _head(self, lines):
        found = []
        while True:
            first = lines.read(1)
            if first == b"$":  # what the client says about its reception
                lines.read(int.from_bytes(lines.read(3)[1:], "big"))
                continue
            line = (first + lines.readline()).decode().strip() if first != b"\n" else ""
            if not first:
                return []
            if not line:
                if found:
                    return found
                continue
            found.append(line)

    def _answer(self, verb, head):
        if verb == "OPTIONS":
            return ["Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN"], ""
        if verb == "DESCRIBE":
            return [
                "Content-Type: application/sdp",
                f"Content-Base: {self.url}/",
                f"Content-Length: {len(SDP)}",
            ], SDP
        if verb == "SETUP":
            return ["Transport: RTP/AVP/TCP;unicast;interleaved=0-1"], ""
        return [], ""

    def _play(self, connection, lock):
        packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        packets.bind(("127.0.0.1", 0))
        process = subprocess.Popen(
            [
                *("ffmpeg", "-nostdin", "-loglevel", "error", "-re", "-f", "lavfi"),
                *("-i", f"testsrc=size={self.size}:rate={self.fps}", "-c:v", "mjpeg", "-q:v", "4"),
                *("-huffman", "0", "-force_duplicated_matrix", "1", "-pix_fmt", "yuvj420p", "-f", "rtp"),
                f"rtp://127.0.0.1:{packets.getsockname()[1]}?pkt_size=1200",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def relay():
            with packets:
                packets.settimeout(5)
                while True:
                    try:
                        packet = packets.recv(65_536)
                        if self.silent.is_set():
                            continue
                        with lock:
                            connection.sendall(b"$\0" + len(packet).to_bytes(2, "big") + packet)
                    except OSError:
                        return

        threading.Thread(target=relay, daemon=True).start()
        return process

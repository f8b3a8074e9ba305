"""A provider that is reached by name and over TLS: a server of DNS, one of chat completions, and a root of its own.

    python3 provider.py FOLDER

Answers every name with 127.0.0.1 at 127.0.0.1:53, and listens for https://provider.test:8443. Writes the root that
it is trusted by to FOLDER/ca.pem, and then FOLDER/ready.
"""

import http.server
import socket
import ssl
import struct
import subprocess
import sys
import threading
from pathlib import Path

ANSWER = b"""{"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0,
"message": {"role": "assistant", "content": "found by name, over TLS"}, "finish_reason": "stop"}],
"usage": {"prompt_tokens": 9, "completion_tokens": 6, "total_tokens": 15}}"""


def answer_names() -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    while True:
        query, client = server.recvfrom(512)
        end = query.index(b"\0", 12) + 5  # the name, its type and its class
        (kind,) = struct.unpack(">H", query[end - 4:end - 2])
        records = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if kind == 1 else b""
        head = query[:2] + b"\x81\x80\0\1" + struct.pack(">H", bool(records)) + b"\0\0\0\0"
        server.sendto(head + query[12:end] + records, client)


class Provider(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        pass


def make_certificates(folder: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    (folder / "names").write_text("subjectAltName=DNS:provider.test\n")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=root")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "request", "-subj", "/CN=provider.test")
    openssl("x509", "-req", "-in", "request", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-extfile", "names", "-out", "cert.pem")


def main() -> None:
    folder = Path(sys.argv[1])
    make_certificates(folder)
    threading.Thread(target=answer_names, daemon=True).start()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 8443), Provider)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (folder / "ready").touch()
    server.serve_forever()


if __name__ == "__main__":
    main()

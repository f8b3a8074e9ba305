"""A real nginx with deploy/nginx.conf before the proxy: TLS, and nothing held back."""

import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
from contextlib import contextmanager
from http.client import HTTPSConnection, IncompleteRead
from pathlib import Path
from typing import NamedTuple

import pytest

from harness import PATIENCE, TEXT, free_port, serving, wait_until
from prometheus import DEPLOY

KEY = "a-client-key"
NAME = "plimsoll.example.com"
# The proxy's own limit of a body, low so that the test is fast.
LIMIT = 4 << 20

CONFIG = """
[server]
data_dir = "data"
max_body_bytes = {limit}

[clients.one]
key_sha256 = "{key}"

[providers.scripted]
base_url = "http://127.0.0.1:{port}/v1"
auth = "none"
profile = "openai"
ask_models = false
"""

# Around deploy/nginx.conf: what Debian has in /etc/nginx/nginx.conf, but in a folder of the test.
AROUND = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log; {user}
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  # As in Debian's: deploy/nginx.conf has to switch it off.
  gzip on; gzip_types text/event-stream application/json; gzip_min_length 1;
  include {folder}/plimsoll.conf;
}}
"""


class Front(NamedTuple):
    port: int
    certificate: Path
    # The proxy's port.
    proxy: int = 0


@pytest.fixture(scope="module")
def front(provider, tmp_path_factory):
    """An nginx before a proxy."""
    folder = tmp_path_factory.mktemp("nginx")
    config = CONFIG.format(limit=LIMIT, key=hashlib.sha256(KEY.encode()).hexdigest(), port=provider.port)
    certificate = make_certificate(folder)
    with serving(config) as proxy, nginx(folder, proxy.removeprefix("http://")) as port:
        yield Front(port, certificate, int(proxy.rpartition(":")[2]))


def make_certificate(folder):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}",
         "-keyout", folder / "plimsoll.key", "-out", folder / "plimsoll.crt"],
        check=True, capture_output=True, timeout=PATIENCE)
    return folder / "plimsoll.crt"


@contextmanager
def nginx(folder, proxy):
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, user=user))
    written = (DEPLOY / "nginx.conf").read_text()
    # Another process may take a free port first; then it is tried with another.
    for _ in range(5):
        port = free_port()
        site = written
        for there, here in {"listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
                            "server 127.0.0.1:1876": f"server {proxy}",
                            "/etc/nginx/tls/plimsoll.crt": f"{folder}/plimsoll.crt",
                            "/etc/nginx/tls/plimsoll.key": f"{folder}/plimsoll.key"}.items():
            assert site.count(there) == 1, there
            site = site.replace(there, here)
        (folder / "plimsoll.conf").write_text(site)
        # "stderr" before the configuration is read: nothing is written outside of the folder.
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen([program, "-p", folder, "-e", "stderr", "-c", folder / "nginx.conf"],
                                       stdout=log, stderr=log)
        wait_until(lambda: process.poll() is not None or answers(port, folder), "nginx answers")
        if process.poll() is None:
            break
    else:
        raise AssertionError((folder / "log").read_text() + (folder / "error.log").read_text())
    try:
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


def answers(port, folder):
    try:
        return ask(Front(port, folder / "plimsoll.crt"), "GET", "/healthz").status == 200
    except OSError:
        return False


class Connection(HTTPSConnection):
    """To nginx on this machine, by the name in its certificate."""

    def __init__(self, front):
        trust = ssl.create_default_context(cafile=front.certificate)
        super().__init__("127.0.0.1", front.port, timeout=PATIENCE, context=trust)

    def connect(self):
        super(HTTPSConnection, self).connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=NAME)


def ask(front, method, path, body=None, headers=None):
    connection = Connection(front)
    connection.request(method, path, body, headers or {})
    return connection.getresponse()


def chat(front, model, tag, text="Ahoy", headers=None, **more):
    body = {"model": model, "messages": [{"role": "user", "content": text}], "user": tag, **more}
    keyed = {"authorization": f"Bearer {KEY}", "content-type": "application/json", **(headers or {})}
    return ask(front, "POST", "/v1/chat/completions", json.dumps(body).encode(), keyed)


def test_an_answer_has_its_headers(front, provider, tag):
    # Such as a login that is long, and a client that says of itself that it is another.
    headers = {"x-login": "l" * 40_000, "x-forwarded-for": "10.9.8.7", "accept-encoding": "gzip"}
    answer = chat(front, "scripted/text", tag, headers=headers)
    assert answer.status == 200
    assert answer.headers["x-plimsoll-provider"] == "scripted"
    assert answer.headers["x-plimsoll-prompt-tokens"] == "321"
    assert len(answer.headers["x-plimsoll-session"]) == 32
    assert answer.headers["server-timing"]
    assert json.loads(answer.read())["choices"][0]["message"]["content"] == TEXT
    seen = {name.lower(): value for name, value in provider.last(tag)["headers"].items()}
    assert seen["x-login"] == headers["x-login"]
    for name in ("forwarded", "x-forwarded-for"):
        assert name not in seen, "whose request it is"


def test_a_stream_is_passed_on_as_it_comes(front, provider, tag):
    answer = chat(front, "scripted/drip", tag, stream=True, headers={"accept-encoding": "gzip"})
    assert answer.headers["content-type"] == "text/event-stream"
    received = b""
    # The provider sends no more until its connection is closed, so that what is read here is before the end.
    while b"first" not in received:
        received += answer.read1()
        assert received, "the answer ended"
    assert b"[DONE]" not in received
    assert not provider.saw_close(tag)
    answer.close()
    wait_until(lambda: provider.saw_close(tag), "the provider sees that the client has left")


def test_a_broken_answer_is_not_taken_for_a_whole_one(front, tag):
    answer = chat(front, "scripted/broken", tag, stream=True)
    assert answer.status == 200
    with pytest.raises(IncompleteRead) as error:
        answer.read()
    assert b"half" in error.value.partial


def test_a_large_body_passes(front, provider, tag):
    text = "w" * (LIMIT - 1000)
    assert chat(front, "scripted/text", tag, text).status == 200
    assert len(provider.last(tag)["raw"]) > LIMIT - 1000


def test_a_body_too_large_is_refused_by_the_proxy(front, tag):
    answer = chat(front, "scripted/text", tag, "w" * LIMIT)
    assert (answer.status, answer.headers["x-plimsoll-error"]) == (413, "body_too_large")
    assert json.loads(answer.read())["error"]["code"] == "body_too_large"


def test_the_limits_are_beyond_those_of_the_proxy():
    nginx_conf, settings = ((file.read_text()) for file in (DEPLOY / "nginx.conf", DEPLOY.parent / "config.toml"))

    def of_nginx(name):
        return int(re.search(rf"^ +{name} (?:4 )?(\d+)[mks];", nginx_conf, re.MULTILINE)[1])

    def of_proxy(name):
        return int(re.search(rf"^#?{name} = (\d+)$", settings, re.MULTILINE)[1])

    # By default, no body is larger than a quarter of these.
    assert of_nginx("client_max_body_size") << 20 > of_proxy("max_bytes_in_flight") / 4
    assert of_nginx("large_client_header_buffers") << 10 >= of_proxy("max_header_bytes")
    for nginx_wait in ("proxy_read_timeout", "proxy_send_timeout"):
        for wait in ("first_byte_timeout_ms", "idle_timeout_ms"):
            assert of_nginx(nginx_wait) * 1000 > of_proxy(wait) + of_proxy("max_time_ms")


def test_connections_to_the_proxy_are_used_again(front, tag):
    def connected():
        """The ports that were connected to the proxy, and may be closed since."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ends = [{end.rpartition(":")[2] for end in row[1:3]} for row in rows]
        return {port for pair in ends for port in pair if f"{front.proxy:04X}" in pair}

    assert chat(front, "scripted/text", tag).read()
    before = connected()
    for _ in range(5):
        assert chat(front, "scripted/text", tag).read()
    assert before and connected() <= before


def test_a_websocket_reaches_the_proxy(front):
    headers = {"authorization": f"Bearer {KEY}", "connection": "Upgrade", "upgrade": "websocket",
               "sec-websocket-version": "13", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    answer = ask(front, "GET", "/v1/responses", headers=headers)
    assert (answer.status, answer.headers["x-plimsoll-error"]) == (426, "websocket_refused")


def test_the_dashboard_of_the_proxy_opens(front):
    headers = {"host": NAME, "origin": f"https://{NAME}", "authorization": f"Bearer {KEY}"}
    answer = ask(front, "GET", "/plimsoll/api/sessions", headers=headers)
    assert answer.status == 200 and "sessions" in json.loads(answer.read())
    assert ask(front, "GET", "/v1/models").status == 401, "a key is needed"

"""Every peer speaks the line protocol and reaches the server, with the versions of HTTP it is here for.

LAB_PEERS names the folder that `install` filled, LAB_PROGRAM the program ropeway-lab for the peers inside it.
"""

import json
import os
import subprocess
import tomllib
from collections.abc import Iterator

import pytest
from conftest import HERE, Server, free_port

PEERS = tomllib.loads((HERE / "peers.toml").read_text())
# Ropeway itself needs a gateway: its adapter is tested with the comparison.
FOREIGN = [name for name, peer in PEERS.items() if peer.get("through") != "gateway"]
DEADLINE_MS = 20_000
# What each speaks once it knows the server: Chromium learns of HTTP/3 by Alt-Svc, libcurl is told to try it first.
HTTP = {"aiohttp": "1.1", "chromium": "3", "chromium-hev3": "3", "libcurl-h3": "3"}


class Peer:
    """A running adapter."""

    def __init__(self, name: str, server: Server) -> None:
        lab = os.environ.get("LAB_PROGRAM", "ropeway-lab")
        places = {"here": str(HERE), "peers": os.environ["LAB_PEERS"], "lab": lab}
        environment = os.environ | {"LAB_CA": str(server.ca), "LAB_ORIGIN": server.url}
        command = [word.format(**places) for word in PEERS[name]["command"]]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1, env=environment)
        self.ready = self.read()["ready"]

    def ask(
        self, name: str, method: str, url: str, body_bytes: int = 0, deadline_ms: int = DEADLINE_MS, key: str | None = None
    ) -> None:
        """Asks for a request."""
        asked = {"id": name, "method": method, "url": url, "body_bytes": body_bytes, "deadline_ms": deadline_ms}
        asked |= {"key": key} if key else {}
        self.process.stdin.write(json.dumps(asked) + "\n")

    def read(self) -> dict:
        """Waits for the next line."""
        line = self.process.stdout.readline()
        assert line, "the adapter ended"
        return json.loads(line)

    def quit(self) -> int:
        """Ends it as the harness does, and gives its exit code."""
        self.process.stdin.write('{"quit": true}\n')
        self.process.stdin.close()
        return self.process.wait(10)


@pytest.fixture(params=FOREIGN)
def peer(request: pytest.FixtureRequest, server: Server) -> Iterator[Peer]:
    """Starts each peer in turn."""
    if PEERS[request.param]["command"][0] == "{lab}" and "LAB_PROGRAM" not in os.environ:
        pytest.skip("LAB_PROGRAM names no ropeway-lab")
    peer = Peer(request.param, server)
    assert peer.ready["peer"] == request.param
    yield peer
    if peer.process.poll() is None:
        assert peer.quit() == 0


def test_it_names_its_version_and_the_source_of_its_settings(peer: Peer) -> None:
    assert peer.ready["version"][0].isdigit() or "/" in peer.ready["version"]
    assert peer.ready["settings"]


def test_requests_in_flight_together_are_executed_once_and_answered_in_full(peer: Peer, server: Server) -> None:
    peer_name = peer.ready["peer"]
    names = [f"{peer_name}-{n}" for n in range(12)]
    for n, name in enumerate(names):
        if n % 2:
            peer.ask(name, "POST", f"{server.url}/post?id={name}", body_bytes=10_240)
        else:
            peer.ask(name, "GET", f"{server.url}/bytes/2048?id={name}")
    answers = {answer["id"]: answer for answer in (peer.read() for _ in names)}
    for n, name in enumerate(names):
        answer = answers[name]
        assert (answer["status"], answer["error"]) == (200, None), answer
        assert answer["bytes"] == (len("10240") if n % 2 else 2048)
        assert 0 < answer["ms"] < DEADLINE_MS
        executed = server.executed(name)
        assert [line["bytes"] for line in executed] == [10_240 if n % 2 else 0]


def test_a_key_makes_the_service_execute_a_post_once_however_often_it_comes(peer: Peer, server: Server) -> None:
    name = f"keyed-{peer.ready['peer']}"
    for _ in range(2):
        peer.ask(name, "POST", f"{server.url}/post?id={name}", body_bytes=10_240, key=f"lab-{name}")
        answer = peer.read()
        assert (answer["status"], answer["bytes"]) == (200, len("10240")), answer
    assert len(server.executed(name)) == 1


def test_a_large_answer_arrives_whole(peer: Peer, server: Server) -> None:
    peer.ask("large", "GET", f"{server.url}/bytes/204800?id=large-{peer.ready['peer']}")
    assert peer.read()["bytes"] == 204_800


def test_it_speaks_the_version_of_http_it_is_here_for(peer: Peer, server: Server) -> None:
    peer_name = peer.ready["peer"]
    for round in ("first", "second", "third"):
        peer.ask(round, "GET", f"{server.url}/bytes/1?id=http-{peer_name}-{round}")
        assert peer.read()["status"] == 200
    (last,) = server.executed(f"http-{peer_name}-third")
    assert last["http"] == HTTP.get(peer_name, "2")


def test_a_server_that_is_not_there_is_an_error_within_the_deadline(peer: Peer) -> None:
    peer.ask("lost", "POST", f"https://localhost:{free_port()}/post?id=lost", body_bytes=1, deadline_ms=1_500)
    answer = peer.read()
    assert (answer["id"], answer["status"]) == ("lost", None)
    assert answer["error"]
    assert answer["ms"] < 3_000

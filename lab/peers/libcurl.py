"""libcurl through pycurl: one multi handle with its connections, driven by asyncio."""

import argparse
import asyncio

import pycurl

import lines

# curl's own `--retry`, which is in the tool and not in the library: tries after the first, and the first wait, which doubles.
RETRIES = 5
BACKOFF_S = 1.0
TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504}
TRANSIENT_ERRORS = {
    pycurl.E_OPERATION_TIMEDOUT,
    pycurl.E_COULDNT_RESOLVE_HOST,
    pycurl.E_COULDNT_CONNECT,  # --retry-connrefused
}
# A third of the deadline, so that a retry has a chance; curl's documentation shows the option and recommends no value.
CONNECT_TIMEOUT_MS = 10_000

SETTINGS = (
    f"--retry {RETRIES} --retry-connrefused, and --retry-all-errors for GET (everything.curl.dev/usingcurl/downloads/retry); "
    f"--connect-timeout {CONNECT_TIMEOUT_MS // 1000}; one multi handle, so connections are reused"
)


class Failed(Exception):
    """A transfer that libcurl gave up."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Multi:
    """The multi interface, with sockets and timer watched by the event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None
        self.waiting: dict[pycurl.Curl, asyncio.Future] = {}
        self.multi = pycurl.CurlMulti()
        self.multi.setopt(pycurl.M_SOCKETFUNCTION, self.watch)
        self.multi.setopt(pycurl.M_TIMERFUNCTION, self.set_timer)

    async def perform(self, handle: pycurl.Curl) -> None:
        """Runs one transfer."""
        done = self.waiting[handle] = self.loop.create_future()
        self.multi.add_handle(handle)
        try:
            await done
        finally:
            del self.waiting[handle]
            self.multi.remove_handle(handle)

    def watch(self, what: int, socket: int, _multi: object, _data: object) -> None:
        """Is told by libcurl which events of a socket it waits for."""
        self.loop.remove_reader(socket)
        self.loop.remove_writer(socket)
        if what in (pycurl.POLL_IN, pycurl.POLL_INOUT):
            self.loop.add_reader(socket, self.act, socket, pycurl.CSELECT_IN)
        if what in (pycurl.POLL_OUT, pycurl.POLL_INOUT):
            self.loop.add_writer(socket, self.act, socket, pycurl.CSELECT_OUT)

    def set_timer(self, timeout_ms: int) -> None:
        """Is told by libcurl when it wants to be called; -1 for never."""
        if self.timer:
            self.timer.cancel()
        never = timeout_ms < 0
        self.timer = None if never else self.loop.call_later(timeout_ms / 1000, self.act, pycurl.SOCKET_TIMEOUT, 0)

    def act(self, socket: int, events: int) -> None:
        """Lets libcurl work, then wakes whoever waits for a transfer that is over."""
        self.multi.socket_action(socket, events)
        _, good, bad = self.multi.info_read()
        for handle in good:
            self.end(handle, None)
        for handle, code, text in bad:
            self.end(handle, Failed(code, text))

    def end(self, handle: pycurl.Curl, failure: Failed | None) -> None:
        """Ends the wait for a transfer."""
        done = self.waiting.get(handle)
        if done is None or done.done():
            return
        if failure:
            done.set_exception(failure)
        else:
            done.set_result(None)


class Peer:
    """What an app would build on libcurl: a multi handle and the retry rule of the tool."""

    def __init__(self, http_version: int) -> None:
        self.http_version = http_version
        self.multi = Multi()

    async def fetch(self, request: lines.Request) -> tuple[int, int]:
        """Tries until it worked, or until the rule says to stop."""
        wait_s = BACKOFF_S
        for retries_left in range(RETRIES, -1, -1):
            try:
                status, length = await self.attempt(request)
            except Failed as failure:
                transient = failure.code in TRANSIENT_ERRORS or request.method == "GET"
                if not transient or not retries_left:
                    raise
            else:
                if status not in TRANSIENT_STATUS or not retries_left:
                    return status, length
            await asyncio.sleep(wait_s)
            wait_s *= 2
        raise AssertionError("the last try returns or raises")

    async def attempt(self, request: lines.Request) -> tuple[int, int]:
        """Sends the request once."""
        length = 0

        def take(part: bytes) -> None:
            nonlocal length
            length += len(part)

        handle = pycurl.Curl()
        handle.setopt(pycurl.URL, request.url)
        handle.setopt(pycurl.HTTP_VERSION, self.http_version)
        handle.setopt(pycurl.CAINFO, lines.CA)
        handle.setopt(pycurl.PIPEWAIT, 1)
        handle.setopt(pycurl.CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS)
        handle.setopt(pycurl.TIMEOUT_MS, max(1, int(request.left_s * 1000)))
        handle.setopt(pycurl.WRITEFUNCTION, take)
        handle.setopt(pycurl.HTTPHEADER, [f"{name}: {value}" for name, value in request.headers.items()])
        if request.method == "POST":
            handle.setopt(pycurl.POSTFIELDS, request.body or b"")
        try:
            await self.multi.perform(handle)
            return handle.getinfo(pycurl.RESPONSE_CODE), length
        finally:
            handle.close()


async def main() -> None:
    """Serves with the HTTP version that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", choices=["2", "3"], default="2", help="3 tries HTTP/3 first and falls back")
    http = parser.parse_args().http
    peer = Peer(pycurl.CURL_HTTP_VERSION_3 if http == "3" else pycurl.CURL_HTTP_VERSION_2TLS)
    version = " ".join(pycurl.version.split()[1:3])
    name = "libcurl-h3" if http == "3" else "libcurl"
    await lines.serve(name, version, SETTINGS, peer.fetch)


asyncio.run(main())

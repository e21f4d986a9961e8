"""aiohttp's client with the retry middleware of its documentation."""

import asyncio
import ssl

import aiohttp

import lines

# "Simple Retry Middleware" of aiohttp's client middleware cookbook tries three times.
TRIES = 3
SETTINGS = (
    f"{TRIES} tries, by the rule of the retry middleware in docs.aiohttp.org/en/stable/client_middleware_cookbook.html "
    "(an answer below 400 ends them); GET is sent again by aiohttp itself when a kept connection was dead; HTTP/1.1"
)


async def retry(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Sends again what was answered by an error."""
    response = await handler(request)
    for _ in range(TRIES - 1):
        if response.ok:
            break
        response = await handler(request)
    return response


async def main() -> None:
    """Serves with one session."""
    trust = ssl.create_default_context(cafile=lines.CA or None)
    connector = aiohttp.TCPConnector(ssl=trust)
    async with aiohttp.ClientSession(connector=connector, middlewares=(retry,)) as session:

        async def fetch(request: lines.Request) -> tuple[int, int]:
            timeout = aiohttp.ClientTimeout(total=request.left_s)
            async with session.request(
                request.method, request.url, data=request.body, headers=request.headers, timeout=timeout
            ) as response:
                length = 0
                async for part in response.content.iter_any():
                    length += len(part)
                return response.status, length

        await lines.serve("aiohttp", aiohttp.__version__, SETTINGS, fetch)


asyncio.run(main())

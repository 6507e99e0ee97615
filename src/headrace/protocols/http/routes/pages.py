"""The page at `/`, for people who open the port in a browser: the console if one runs, otherwise what this is.

A console runs if this server advertises its address. The page is self-contained: nothing is loaded from elsewhere.
`POLICIES` has the content security policy of each page.
"""

from __future__ import annotations

from typing import Any, Final

from litestar import Response, get
from litestar.di import NamedDependency

from headrace.edge.bridge import Bridge
from headrace.protocols.http.middleware.headers import policy_of
from headrace.protocols.http.openapi import page as docs

_HOME: Final = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Headrace</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.6 system-ui, sans-serif; margin: 3rem auto; max-width: 42rem; padding: 0 1.5rem; }
  h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
  pre { border: 1px solid #8886; border-radius: .4rem; overflow-x: auto; padding: .8rem 1rem; }
  pre, code, dt { font-family: ui-monospace, monospace; font-size: .9rem; }
  dt { margin-top: .6rem; }
  dd { margin-left: 1rem; }
</style>
</head>
<body>
<h1>Headrace</h1>
<p>This is the HTTP port of a Headrace server, a durable topic broker. It is running.</p>
<h2>First commands</h2>
<pre>headrace topic create orders --partitions 4
echo 'my first message' | headrace produce orders
headrace consume orders --max 1</pre>
<p>To look at topics, messages and groups in a browser, run <code>headrace console</code>.</p>
<h2>On this port</h2>
<dl>
  <dt><a href="/docs">/docs</a></dt><dd>every operation of the API, with examples</dd>
  <dt><a href="/docs/openapi.json">/docs/openapi.json</a></dt><dd>the same as an OpenAPI document</dd>
  <dt>/v1/topics</dt><dd>the API; needs a token if the server has tokens</dd>
  <dt><a href="/health/ready">/health/ready</a></dt><dd>whether the server is ready for messages</dd>
  <dt>/metrics</dt><dd>metrics for Prometheus; needs the right to read all topics</dd>
</dl>
</body>
</html>
"""

# The paths of all pages, with their policies.
POLICIES: Final = (
    ("/", policy_of(_HOME)),
    *((path, policy_of(docs.page())) for path in (docs.PATH, f"{docs.PATH}/")),
)


@get("/", opt={"operation": "home"}, include_in_schema=False)
async def home(bridge: NamedDependency[Bridge]) -> Response[Any]:
    """Redirect to the console, or show the home page."""
    console = bridge.broker.servers.address("console")
    if console is not None:
        # Not cached: the console may be gone tomorrow.
        return Response(b"", status_code=307, headers={"Location": console, "Cache-Control": "no-store"})
    return Response(_HOME, media_type="text/html; charset=utf-8")


HANDLERS = [home]

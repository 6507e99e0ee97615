"""`headrace whoami`: the identity and rights of a token on a server."""

from __future__ import annotations

from headrace.cli.options.groups import with_option_groups
from headrace.cli.options.shared import Json, ServerOptions
from headrace.cli.terminal.output import print_json, print_line, print_table
from headrace.core.text import time_shown

EXAMPLES = "Example: HEADRACE_TOKEN=hr_… headrace whoami --url headrace+tls://broker:7071"


@with_option_groups
def whoami(*, as_json: Json = False, server: ServerOptions) -> None:
    """Show the name, expiry and rights of your token."""
    from headrace.wire.descriptions import IdentityOut

    with server.connected() as client:
        found = IdentityOut.of(client.whoami())
    if as_json:
        print_json(found)
        return
    if found.token_id is None:
        print_line(f"{found.name}: no token was sent, and this server gives full access to callers without one")
        return
    end = "never expires" if found.expires_us is None else f"expires {time_shown(found.expires_us)}"
    print_line(f"{found.name} (token {found.token_id}), {end}")
    rows = [
        (
            ", ".join(grant.rights + ["forward only"] * grant.forward_only),
            grant.topics,
            ", ".join(grant.groups),
            ", ".join(grant.producers),
        )
        for grant in found.grants
    ]
    print_table(("rights", "topics", "groups", "producers"), rows)

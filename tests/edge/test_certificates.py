"""For how long certificates are valid, read from their files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import trustme

from headrace.core.limits import MICROSECONDS
from headrace.edge.certificates import validities


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 2200])
def test_validities_of_every_certificate_of_a_file(year: int) -> None:
    """Years from 2050 on are written in another way."""
    authority = trustme.CA()
    end = datetime(year, 3, 4, 5, 6, 7, tzinfo=UTC)
    begin = end - timedelta(days=90)
    made = authority.issue_cert("127.0.0.1", not_before=begin, not_after=end)
    chain = made.private_key_and_cert_chain_pem.bytes().decode() + authority.cert_pem.bytes().decode()
    first, *rest = validities(chain)
    assert first == (int(begin.timestamp()) * MICROSECONDS, int(end.timestamp()) * MICROSECONDS)
    assert len(rest) == 1 and rest[0][0] < rest[0][1]


def test_what_is_no_certificate() -> None:
    assert validities("no certificate") == []
    for body in ("MAA=", "MAMCAQE="):
        with pytest.raises(ValueError, match="too early"):
            validities(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")

"""How a Java is started for tests: they are over before its best compiler has paid off.

Without it, a Spark that starts needs half the processor. tests/conftest.py gives this to every Spark, in this process
or another; those that run elsewhere, such as executors, are given it by their settings.
"""

from __future__ import annotations

from typing import Final

QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

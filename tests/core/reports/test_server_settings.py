"""Settings as a list: names with their layer, values, defaults and origins."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.core.reports.server_settings import FIXED, SettingDescription, describe_settings


class Layer(msgspec.Struct):
    bytes_max: int = 10
    codecs: tuple[str, ...] = ("zstd",)
    check_seconds: Annotated[float, msgspec.Meta(gt=0), FIXED] = 1.0


class Settings(msgspec.Struct):
    layer: Layer = msgspec.field(default_factory=Layer)
    names: list[str] = msgspec.field(default_factory=list)
    port: int = 7070


def test_every_setting_has_its_layer_default_and_origin() -> None:
    settings = Settings(Layer(bytes_max=20), ["a"], 7071)
    described = list(describe_settings(settings, {"layer.bytes_max": "--set", "port": "--http"}))
    assert described == [
        SettingDescription("layer.bytes_max", 20, 10, "--set"),
        SettingDescription("layer.codecs", ("zstd",), ("zstd",), "default"),
        SettingDescription("names", ["a"], [], "default"),
        SettingDescription("port", 7071, 7070, "--http"),
    ]


def test_a_prefix_names_the_layer() -> None:
    assert [each.name for each in describe_settings(Layer(), prefix="rest.")] == ["rest.bytes_max", "rest.codecs"]

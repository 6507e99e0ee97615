"""The broker."""


class Broker: ...

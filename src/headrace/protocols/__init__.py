"""The network protocols: thin translations over `edge` and `broker`, which do not know each other."""

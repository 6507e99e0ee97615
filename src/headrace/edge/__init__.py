"""Where the network begins: what every protocol does with bytes that nobody has checked yet."""

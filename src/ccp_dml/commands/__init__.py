"""One file per command: parse, call, print. Heavy imports wait until a command needs them."""

"""One file a subsystem; the explicit tuple COLLECTORS lists them."""

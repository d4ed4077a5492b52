"""From facts to messages: routes, silences, cases, digests, the rate cap."""

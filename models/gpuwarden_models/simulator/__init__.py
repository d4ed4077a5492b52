"""The one simulator: topology, jobs, clock and faults make frames; three sinks take them.

A frame holds readings and events in the wire's terms. `WirePlayer` plays frames over HTTP,
`write_recording` writes the folder that training reads, `feed` hands them to a `FleetState`.
"""

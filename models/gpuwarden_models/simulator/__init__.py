"""The one simulator: topology, jobs, clock and faults make frames; three sinks take them.

A frame holds readings and events in the wire's terms. `wire_player.WirePlayer` plays frames over
HTTP, `recording_writer.RecordingWriter` writes the folder that training reads, and
`gpuwarden_models.replay.Replay` feeds them to the server's own windows, in process.
"""

"""History as bytes: blocks of series over time, losslessly compressed, and roll-ups of them."""

from gpuwarden_verdict.segments.blocks import Block, Reason
from gpuwarden_verdict.segments.codec import decode_segment, encode_segment
from gpuwarden_verdict.segments.packing import SegmentError

__all__ = ["Block", "Reason", "SegmentError", "decode_segment", "encode_segment"]

"""Fleet recordings of a second author, to test on and never to learn from.

A classifier that is trained and tested on one simulator may only have learnt that simulator. What
is written here shares nothing with it but the recording format: regimes and random processes take
the place of equations, and nothing of the features, detectors or thresholds was consulted.
"""

from gpuwarden_models.second_generator.folder import GENERATOR, write_recording

__all__ = ["GENERATOR", "write_recording"]

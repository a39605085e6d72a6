"""Hypothesis settings of the unit tests: the same examples every time, so that a red run is the change's doing.

HYPOTHESIS_PROFILE=explore looks further, with new examples each time.
"""

import os

from hypothesis import HealthCheck, settings

# A busy machine is no fault of the test's.
slow = [HealthCheck.too_slow]
settings.register_profile("fast", max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=slow)
settings.register_profile("explore", max_examples=2000, deadline=None, suppress_health_check=slow)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

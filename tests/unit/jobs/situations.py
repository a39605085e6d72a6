"""Every situation that a job can be in: one table for all tests of plans."""

from tests.unit.jobs.autoscale_situations import autoscaled_jobs
from tests.unit.jobs.batch_situations import ending_batches, jobs_after_their_end, placed_batches, unplaced_batches
from tests.unit.jobs.serve_situations import serving_jobs
from tests.unit.jobs.situation import Situation

SITUATIONS: dict[str, Situation] = {
    **unplaced_batches(),
    **placed_batches(),
    **ending_batches(),
    **jobs_after_their_end(),
    **serving_jobs(),
    **autoscaled_jobs(),
}

"""Pure decisions: frozen values in, frozen values out. No client, no clock, no randomness, no logging.

attempts    how a batch's attempts stand           replicas   how a serving job's workers stand
admit       may this job run at all                profile    how long it will take
need        what it wants from the fleet           schedule   who gets what, fleet-wide
plan        what to do and what to say about one job
"""

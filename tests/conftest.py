"""Random examples take the time they take: a busy machine is no fault of what they try."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unhurried", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
)
settings.load_profile("unhurried")

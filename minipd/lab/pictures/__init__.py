"""Pictures of runs as SVG: `timeline`, `gaps` (ITL) and `summary`; standard library only."""

from minipd.lab.pictures.gaps import itl_over_time_svg, itl_svg
from minipd.lab.pictures.summary import Measure, summary_svg, usual_measures
from minipd.lab.pictures.svg import Picture
from minipd.lab.pictures.timeline import timeline_svg, timelines_svg

__all__ = [
    "Measure",
    "Picture",
    "itl_over_time_svg",
    "itl_svg",
    "summary_svg",
    "timeline_svg",
    "timelines_svg",
    "usual_measures",
]

"""What lessons use: pictures, predictions, quizzes and exercise checks.

Light to import: widgets and plots are loaded when they are first shown. No other room imports it.
"""

from minipd.lab.calibration import calibration
from minipd.lab.check import check, panel
from minipd.lab.predict import predict, reveal
from minipd.lab.quiz import quiz
from minipd.lab.show import show, show_picture, show_table

__all__ = [
    "calibration",
    "check",
    "panel",
    "predict",
    "quiz",
    "reveal",
    "show",
    "show_picture",
    "show_table",
]

"""The inspector with two models, with example sentences, and with a threshold that moves."""

import json
import shutil
from http.client import HTTPConnection
from threading import Thread

import numpy as np
import pytest
from tests.reports.chromium import needs_chromium
from tests.reports.test_serve import browser, retype  # noqa: F401
from tests.tokens.test_tokenizer import load_tokenizer

from electrify.cli import main
from electrify.errors import UserError
from electrify.reports.heat import corrupt_text, detect
from electrify.reports.inspection import models_and_text
from electrify.reports.judged import Corruption, detect_replaced, judge
from electrify.reports.pair import load_pair
from electrify.reports.serve import start
from electrify.reports.served import ENGLISH, examples_for, rates_at, served_model
from electrify.reports.threshold import Threshold
from electrify.tokens.tokenizer import from_vocabulary
from electrify.training.export_run import export_run
from electrify.training.options import Export

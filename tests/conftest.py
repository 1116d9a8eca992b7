"""One thread per test process, since the models here are too small to share out; `make portable-test` sets others."""

import os

import torch

from toys import THREADS

torch.set_num_threads(THREADS)
os.environ["PROMPTPOOL_FEATURES_GB"] = "0"  # nothing is left in the user's cache, and no test helps another

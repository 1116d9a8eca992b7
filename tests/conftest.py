"""One thread per test process: the models here are too small to share out, and results do not depend on load."""

import torch

torch.set_num_threads(1)

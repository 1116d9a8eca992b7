"""One thread per test process, since the models here are too small to share out; `make portable-test` sets others."""

import torch

from toys import THREADS

torch.set_num_threads(THREADS)

"""The numbers in the tables of the L2P paper (Wang et al., CVPR 2022, Tables 1 to 5), shown beside ours."""

from __future__ import annotations

from typing import NamedTuple


class Reported(NamedTuple):
    """One cell of a table, in percent. Deviations are over three runs; None where the paper gives none."""

    accuracy: float
    deviation: float | None = None
    forgetting: float | None = None
    forgetting_deviation: float | None = None


class Setting(NamedTuple):
    """A method, and how many images of each class its memory holds."""

    method: str
    per_class: int = 0


# Class-incremental: average accuracy and forgetting.
TABLE_1: dict[str, dict[Setting, Reported]] = {
    "cifar100": {
        Setting("ft-seq-frozen"): Reported(17.72, 0.34, 59.09, 0.25),
        Setting("ft-seq"): Reported(33.61, 0.85, 86.87, 0.20),
        Setting("ewc"): Reported(47.01, 0.29, 33.27, 1.17),
        Setting("lwf"): Reported(60.69, 0.63, 27.77, 2.17),
        Setting("l2p"): Reported(83.83, 0.04, 7.63, 0.30),
        Setting("er", 10): Reported(67.87, 0.57, 33.33, 1.28),
        Setting("gdumb", 10): Reported(67.14, 0.37),
        Setting("bic", 10): Reported(66.11, 1.76, 35.24, 1.64),
        Setting("der++", 10): Reported(61.06, 0.87, 39.87, 0.99),
        Setting("co2l", 10): Reported(72.15, 1.32, 28.55, 1.56),
        Setting("l2p-r", 10): Reported(84.21, 0.53, 7.72, 0.77),
        Setting("er", 50): Reported(82.53, 0.17, 16.46, 0.25),
        Setting("gdumb", 50): Reported(81.67, 0.02),
        Setting("bic", 50): Reported(81.42, 0.85, 17.31, 1.02),
        Setting("der++", 50): Reported(83.94, 0.34, 14.55, 0.73),
        Setting("co2l", 50): Reported(82.49, 0.89, 17.48, 1.80),
        Setting("l2p-r", 50): Reported(86.31, 0.59, 5.83, 0.61),
        Setting("upper-bound"): Reported(90.85, 0.12),
    },
    "5-datasets": {
        Setting("ft-seq-frozen"): Reported(39.49, 0.12, 42.62, 0.20),
        Setting("ft-seq"): Reported(20.12, 0.42, 94.63, 0.68),
        Setting("ewc"): Reported(50.93, 0.09, 34.94, 0.07),
        Setting("lwf"): Reported(47.91, 0.33, 38.01, 0.28),
        Setting("l2p"): Reported(81.14, 0.93, 4.64, 0.52),
        Setting("er", 5): Reported(80.32, 0.55, 15.69, 0.89),
        Setting("gdumb", 5): Reported(56.99, 0.06),
        Setting("bic", 5): Reported(78.74, 1.41, 21.15, 1.00),
        Setting("der++", 5): Reported(80.81, 0.07, 14.38, 0.35),
        Setting("co2l", 5): Reported(82.25, 1.17, 17.52, 1.35),
        Setting("l2p-r", 5): Reported(85.56, 0.95, 4.22, 0.03),
        Setting("er", 10): Reported(84.26, 0.84, 12.85, 0.62),
        Setting("gdumb", 10): Reported(70.76, 0.12),
        Setting("bic", 10): Reported(85.53, 2.06, 10.27, 1.32),
        Setting("der++", 10): Reported(84.88, 0.57, 10.46, 1.02),
        Setting("co2l", 10): Reported(86.05, 1.03, 12.28, 1.44),
        Setting("l2p-r", 10): Reported(88.95, 0.78, 4.92, 0.71),
        Setting("upper-bound"): Reported(93.93, 0.18),
    },
}

# Split CIFAR-100 against architecture-based methods, each beside the upper bound of its own backbone.
TABLE_2: dict[str, dict[Setting, Reported]] = {
    "resnet18": {
        Setting("upper-bound"): Reported(80.41),
        Setting("supsup"): Reported(28.34, 2.45),
        Setting("dualnet"): Reported(40.14, 1.64),
    },
    "vit-b16": {Setting("upper-bound"): Reported(90.85), Setting("l2p"): Reported(83.83, 0.04)},
}

# Domain-incremental, CORe50: accuracy on its one test set.
TABLE_3: dict[Setting, Reported] = {
    Setting("ewc"): Reported(74.82, 0.60),
    Setting("lwf"): Reported(75.45, 0.40),
    Setting("l2p"): Reported(78.33, 0.06),
    Setting("er", 50): Reported(80.10, 0.56),
    Setting("gdumb", 50): Reported(74.92, 0.25),
    Setting("bic", 50): Reported(79.28, 0.30),
    Setting("der++", 50): Reported(79.70, 0.44),
    Setting("co2l", 50): Reported(79.75, 0.84),
    Setting("l2p-r", 50): Reported(81.07, 0.13),
    Setting("upper-bound"): Reported(82.15, 0.37),
}

# Task-agnostic, Gaussian scheduled CIFAR-100: final accuracy.
TABLE_4: dict[Setting, Reported] = {
    Setting("ewc"): Reported(63.04, 0.42),
    Setting("l2p"): Reported(88.34, 0.14),
    Setting("er", 50): Reported(82.63, 0.27),
    Setting("gdumb", 50): Reported(81.67, 0.02),
    Setting("der++", 50): Reported(85.24, 0.71),
    Setting("l2p-r", 50): Reported(88.92, 0.39),
    Setting("upper-bound"): Reported(90.85, 0.12),
}

# Ablations on 5-datasets.
TABLE_5: dict[Setting, Reported] = {
    Setting("one-prompt"): Reported(51.96, forgetting=26.60),
    Setting("no-key"): Reported(58.33, forgetting=20.45),
    Setting("no-diversity"): Reported(62.26, forgetting=17.84),
    Setting("l2p"): Reported(81.14, forgetting=4.64),
}

"""Muon for the matrices of the layers, AdamW for the rest (embedding, norms)."""

import torch

PEAK_LR = 2e-3
MUON_LR_RATIO = 10
"""Muon's rate is ten times AdamW's."""
WARM_UP_STEPS = 50
DECAY_FROM = 0.45


class Muon:
    """Momentum, made nearly orthogonal by five Newton-Schulz rounds.

    Idea and coefficients: Keller Jordan, "Muon: An optimizer for hidden layers in neural networks"
    (2024, https://kellerjordan.github.io/posts/muon/).
    """

    def __init__(self, parameters, momentum=0.95, weight_decay=0.05):
        self.parameters, self.momentum, self.weight_decay = parameters, momentum, weight_decay
        self.buffers = [torch.zeros_like(p) for p in parameters]
        self.lr = 0.0

    @torch.no_grad()
    def step(self):
        """One update from the gradients."""
        for parameter, buffer in zip(self.parameters, self.buffers, strict=True):
            buffer.lerp_(parameter.grad, 1 - self.momentum)
            update = orthogonal(parameter.grad.lerp(buffer, self.momentum)).float()
            shape_scale = max(1, parameter.shape[0] / parameter.shape[1]) ** 0.5
            parameter.mul_(1 - self.lr * self.weight_decay)
            parameter.add_(update, alpha=-self.lr * shape_scale)


def orthogonal(matrix):
    """The nearest matrix with equal singular values, roughly, in bf16."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix).bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


class Optimizer:
    """Both optimizers under one schedule: warm up, hold, then fall to zero with the time left."""

    def __init__(self, model):
        named = list(model.named_parameters())
        matrices = [p for name, p in named if p.dim() > 1 and "embed" not in name]
        rest = [p for p in model.parameters() if not any(p is m for m in matrices)]
        groups = [
            {"params": [p for p in rest if p.dim() > 1], "weight_decay": 0.05},
            {"params": [p for p in rest if p.dim() == 1], "weight_decay": 0.0},
        ]
        self.adamw = torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.95), fused=True)
        self.muon = Muon(matrices)
        self.num_steps = 0

    def step(self, progress):
        """One update; `progress` runs from 0 to 1 over the training time."""
        warm_up = min(1.0, (self.num_steps + 1) / WARM_UP_STEPS)
        lr = PEAK_LR * warm_up * min(1.0, (1 - progress) / (1 - DECAY_FROM))
        for group in self.adamw.param_groups:
            group["lr"] = lr
        self.muon.lr = lr * MUON_LR_RATIO
        self.adamw.step()
        self.muon.step()
        self.num_steps += 1

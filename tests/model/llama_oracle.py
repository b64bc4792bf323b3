"""Random transformers models, and ours over the same tensors: the oracle for the forward pass."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tinyvllm_lab.model.config import ModelConfig
from tinyvllm_lab.model.llama import LlamaModel


def random_hf_model(config: dict, seed: int = 0) -> LlamaForCausalLM:
    """A float32 model of this shape (given in transformers 4 form) whose logits are about N(0, 1).

    Every projection keeps the size of its input, so that an error anywhere reaches the logits.
    """
    torch.manual_seed(seed)
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**config))
    model = model.to_empty(device="cpu")
    model.tie_weights()
    # Its frequencies are no parameter, so to_empty left them undefined.
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.8, 1.2)
            else:
                bound = (3 / parameter.shape[1]) ** 0.5
                parameter.uniform_(-bound, bound)
    return model.eval()


def ours(hf_model: LlamaForCausalLM) -> LlamaModel:
    """Our model over the very same tensors, its config read from transformers 5's own form."""
    config = ModelConfig.from_dicts(hf_model.config.to_dict())
    state = hf_model.state_dict()
    return LlamaModel(config, {name: tensor.detach() for name, tensor in state.items()})

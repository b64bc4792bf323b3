"""From files to logits: Safetensors, config, tokenizer, Llama forward, sampling."""

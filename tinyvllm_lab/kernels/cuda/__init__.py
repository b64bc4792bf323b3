"""The GPU back end: `.cu` files compiled by nvcc or NVRTC and launched by PyCUDA."""

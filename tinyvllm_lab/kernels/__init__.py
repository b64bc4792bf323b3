"""Find, build, launch and x-ray the CUDA kernels, on a GPU or on the CPU."""

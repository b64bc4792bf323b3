"""The CPU back end: `.cu` files compiled by the C++ compiler and run as fibers."""

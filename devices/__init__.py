"""The hardware: buffers, programs, launches, pools."""

"""How other libraries see a gpu_zoo environment: one file a library."""

"""Who is compared by compare_training.py: a module each, run in a process of its own."""

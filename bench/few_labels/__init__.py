"""Parts of bench/few_labels.py: data sets, draws, methods, rows and tables."""

"""One plug-in of every kind that a package can add to unmask."""

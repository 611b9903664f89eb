"""One of everything that a package can add to unmask, without a change of unmask itself."""

"""Everything that touches the world, behind protocols."""

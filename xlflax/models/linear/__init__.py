"""Matrix products: whole, split over devices, and in eight bits."""

"""What people and programs see: pages, HTTP, metrics, JSON."""
